"""Commands that make jobs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

from leftfold import asking
from leftfold.asking import NewJob
from leftfold.core import commands as c
from leftfold.core.lifecycle import Who
from leftfold.core.retry import DEFAULT_POLICY, Policy
from leftfold.engine.running import Running
from leftfold.store import bulk, creating
from leftfold.store.creating import OnConflict
from leftfold.store.replies import Receipt
from leftfold.store.requests import Request, hash_of
from leftfold.times import Moment, split

T = TypeVar("T")


def _as_it_is(receipt: Receipt | None) -> Receipt | None:
    return receipt


class Making(Running):
    """Making jobs."""

    @overload
    def enqueue(
        self, kind: str, payload: Any = None, *, on_conflict: Literal["skip"], queue: str = "default",
        priority: int | str = 0, due: Moment | None = None, key: str | None = None, correlation_id: str | None = None,
        cause: str | None = None, tenant: str = "", after: Sequence[str] = (), policy: Policy = DEFAULT_POLICY,
        request_id: str | None = None, by: c.Actor | str | None = None, within: object = None,
    ) -> Receipt | None: ...  # fmt: skip

    @overload
    def enqueue(
        self, kind: str, payload: Any = None, *, on_conflict: Literal["return", "raise", "replace"] = "return",
        queue: str = "default", priority: int | str = 0, due: Moment | None = None, key: str | None = None,
        correlation_id: str | None = None, cause: str | None = None, tenant: str = "", after: Sequence[str] = (),
        policy: Policy = DEFAULT_POLICY, request_id: str | None = None, by: c.Actor | str | None = None,
        within: object = None,
    ) -> Receipt: ...  # fmt: skip

    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        on_conflict: OnConflict = "return",
        request_id: str | None = None,
        by: c.Actor | str | None = None,
        within: object = None,
        **job: Any,
    ) -> Receipt | None:
        """Make a job that may be claimed once it is due.

        `due` is an aware datetime, or seconds from now. `key` is unique among live jobs of the tenant and kind;
        `on_conflict` says what to do if it is taken. `within` is a connection of your own: the job is then part of
        its transaction.
        """
        return self._enqueue_new(NewJob(kind, payload, **job), on_conflict, request_id, by, within)

    def _enqueue_new(
        self,
        job: NewJob,
        on_conflict: OnConflict = "return",
        request_id: str | None = None,
        by: c.Actor | str | None = None,
        within: object = None,
    ) -> Receipt | None:
        """Make one job."""
        asking.check_conflict(on_conflict)
        actor = asking.actor_of(Who.CLIENT, by, self.actor)
        job_id = self._ids.make_one()
        if request_id is None and within is None and creating.is_quick(actor, self._forbidden):
            mold = asking.mold(job, actor)
            if mold is not None:
                return self._write(creating.create_plain(mold, job_id, asking.payload_of(job)))
        (receipt,) = self._create([asking.enqueue(job, job_id, actor, request_id)], on_conflict, within)
        return receipt

    def enqueue_many(
        self,
        jobs: Iterable[NewJob],
        *,
        on_conflict: OnConflict = "return",
        request_id: str | None = None,
        by: c.Actor | str | None = None,
        within: object = None,
    ) -> list[Receipt | None]:
        """Make jobs in one transaction: all of them, or none."""
        new, actor = list(jobs), asking.actor_of(Who.CLIENT, by, self.actor)
        asking.check_batch(new)
        asking.check_conflict(on_conflict)
        if len(new) == 1:
            return [self._enqueue_new(new[0], on_conflict, request_id, by, within)]
        quick = self.store.sends_ahead and len(new) > creating.PART and creating.is_quick(actor, self._forbidden)
        quick = quick and request_id is None and within is None and asking.are_free(new)
        if quick and asking.are_alike(new):
            command = asking.enqueue(new[0], self._ids.make_one(), actor, None)
            return self._write(bulk.create_alike(command, self._ids.make, [job.payload for job in new], _as_it_is))
        asked = list(zip(new, self._ids.make(len(new)), strict=True))
        if quick:
            return self._write(creating.create_free(lambda: asking.parts(asked, actor, creating.PART)))
        return self._create([asking.enqueue(*each, actor, request_id) for each in asked], on_conflict, within)

    def _enqueue_alike(
        self, job: NewJob, payloads: Sequence[Any], on_conflict: OnConflict, give: Callable[[Receipt | None], T]
    ) -> list[T]:
        """Make jobs that differ in nothing but their payloads, and give what `give` makes of their receipts."""
        asking.check_batch(payloads)
        asking.check_conflict(on_conflict)
        actor = asking.actor_of(Who.CLIENT, None, self.actor)
        quick = self.store.sends_ahead and len(payloads) > creating.PART and creating.is_quick(actor, self._forbidden)
        if quick and asking.are_free([job]):
            command = asking.enqueue(job, self._ids.make_one(), actor, None)
            return self._write(bulk.create_alike(command, self._ids.make, payloads, give))
        jobs = [job._replace(payload=payload) for payload in payloads]
        return [give(receipt) for receipt in self.enqueue_many(jobs, on_conflict=on_conflict)]

    def receive(
        self,
        kind: str,
        payload: Any = None,
        *,
        queue: str = "default",
        priority: int | str = 0,
        key: str | None = None,
        on_conflict: Literal["return", "raise"] = "return",
        correlation_id: str | None = None,
        cause: str | None = None,
        tenant: str = "",
        request_id: str | None = None,
        by: c.Actor | str | None = None,
        within: object = None,
    ) -> Receipt:
        """Take a job in without admitting it: nobody can claim it before `admit`."""
        asking.check_conflict(on_conflict, asking.ON_CONFLICT_RECEIVED)
        (job_id,) = self._ids.make(1)
        job = NewJob(kind, payload, queue, priority, key=key, correlation_id=correlation_id, cause=cause, tenant=tenant)
        actor = asking.actor_of(Who.CLIENT, by, self.actor)
        command = c.Receive(by=actor, job_id=job_id, spec=asking.spec_of(job), request_id=request_id)
        receipts = self._create([command], on_conflict, within)
        return next(receipt for receipt in receipts if receipt)

    def _create(
        self, commands: Sequence[creating.Creation], on_conflict: OnConflict, within: object
    ) -> list[Receipt | None]:
        if not commands:
            return []
        first = commands[0]
        request = None
        if first.request_id is not None:
            asked = [c.fingerprint(command) for command in commands]
            request = Request(first.spec.tenant, first.request_id, hash_of(asked, on_conflict))
        operation = creating.create(commands, on_conflict, request, self._forbidden)
        if within is not None:
            return self.store.run_within(within, operation)  # who looks for jobs finds it; it is not there yet
        return self._write(operation)

    def admit(
        self,
        job_id: str,
        *,
        job: NewJob | None = None,
        due: Moment | None = None,
        policy: Policy = DEFAULT_POLICY,
        expected_rev: int | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> Receipt:
        """Let a received job in, perhaps with another `job` in its place that the admission put in order."""
        at, delay = split("due", due)
        command = c.Admit(
            by=asking.actor_of(Who.CLIENT, by, self.actor),
            spec=job and asking.spec_of(job),
            policy=policy,
            due=at,
            delay=delay,
            expected_rev=expected_rev,
            request_id=request_id,
        )
        return self._tell(job_id, command)
