"""Claiming jobs, and what their owner then says."""

import functools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from leftfold import asking
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import StoreError
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import Who
from leftfold.core.payload import to_payload
from leftfold.core.values import Failure, WaitFor
from leftfold.engine.running import Running
from leftfold.store import audit, claiming, ops
from leftfold.store.ops import Ask, Outcome
from leftfold.store.query import Operation
from leftfold.store.replies import Claim, Receipt
from leftfold.store.requests import Request, hash_of
from leftfold.times import Moment, Span, split


class Owning(Running):
    """Claiming jobs, and what their owner says."""

    def claim(
        self,
        owner: str,
        *,
        queues: Iterable[str] | None = None,
        kinds: Iterable[str] | None = None,
        limit: int = 1,
        lease: Span | None = None,
        job_id: str | None = None,
        start: bool = False,
        request_id: str | None = None,
    ) -> list[Claim]:
        """Take up to `limit` jobs that are due, of these queues and kinds (any, if None), the highest priority first.

        `start` says in the same breath that their handlers are entered: for who enters them at once. With `job_id`,
        take this very job, a stalled one too, or raise why not. A claim whose answer was lost is given again under the
        same `request_id`.
        """
        wanted = asking.wanted(queues, kinds, limit)
        asking.check_direct(job_id, wanted, start=start)
        command = c.Claim(
            by=c.Actor(who=Who.WORKER, name=owner),
            token=claiming.new_token(),
            lease=asking.span("lease", lease),
            direct=job_id is not None,
            request_id=request_id,
        )
        asked = (c.fingerprint(command), wanted, job_id, start)
        request = None if request_id is None else Request("", request_id, hash_of(*asked))
        if job_id is not None:
            found = asking.id_of(job_id)
            return [self._write(Operation(lambda: claiming.claim_job(found, command, request, self._forbidden)))]
        steps = functools.partial(
            claiming.claim, command, wanted, self._trail, start=start, request=request, forbidden=self._forbidden
        )
        taken = self._write(Operation(steps, apart=request is None), folds=False)  # who claims waits for a job
        claims, unread = claiming.claims_of(taken, owner)
        if unread:
            with suppress(StoreError):  # the others are claimed, and must not be lost for it; a keeper freezes these
                self._write(Operation(lambda: audit.freeze(unread, self.actor)))
        return claims

    def start(self, claim: Claim, *, request_id: str | None = None) -> Receipt:
        """Say that the handler is entered."""
        return self._only(self._own([Ask(claim.job_id, c.Start(by=claim.actor, request_id=request_id))]))

    def start_many(self, claims: Iterable[Claim]) -> list[Outcome]:
        """Start many at once."""
        return self._own([Ask(claim.job_id, c.Start(by=claim.actor)) for claim in claims])

    def heartbeat(self, claim: Claim, *, lease: Span | None = None, request_id: str | None = None) -> Receipt:
        """Renew the lease. The receipt tells until when, and whether somebody asked the owner to stop."""
        length = asking.span("lease", lease)
        return self._only(
            self._own([Ask(claim.job_id, c.Heartbeat(by=claim.actor, lease=length, request_id=request_id))])
        )

    def heartbeat_many(self, claims: Iterable[Claim], *, lease: Span | None = None) -> list[Outcome]:
        """Renew many leases in one statement."""
        length = asking.span("lease", lease)
        return self._own([Ask(claim.job_id, c.Heartbeat(by=claim.actor, lease=length)) for claim in claims])

    def look_many(self, claims: Iterable[Claim]) -> list[Outcome]:
        """Tell of each claim whether it holds, and whether somebody asked its owner to stop. Nothing is written."""
        held = list(claims)
        asking.check_batch(held)
        return self._read(ops.look, held)

    def complete(self, claim: Claim, result: Any = None, *, request_id: str | None = None) -> Receipt:
        """End the job with a result."""
        command = c.Complete(by=claim.actor, result=to_payload("result", result), request_id=request_id)
        return self._only(self._own([Ask(claim.job_id, command)]))

    def complete_many(self, results: Iterable[tuple[Claim, Any]]) -> list[Outcome]:
        """End many jobs, each with its result."""
        return self._own(
            [
                Ask(claim.job_id, c.Complete(by=claim.actor, result=to_payload("result", result)))
                for claim, result in results
            ]
        )

    def fail(
        self,
        claim: Claim,
        error: Failure | BaseException | str,
        *,
        permanent: bool = False,
        delay: Span | None = None,
        stage: Stage | str = Stage.EXEC,
        reason_code: Reason | str | None = None,
        request_id: str | None = None,
    ) -> Receipt:
        """End the attempt with an error. The job's policy says whether there is another one."""
        command = c.Fail(
            by=claim.actor,
            error=asking.failure_of(error),
            permanent=permanent,
            delay=asking.span("delay", delay),
            stage=asking.stage_of(stage),
            reason_code=None if reason_code is None else asking.reason_of(reason_code),
            request_id=request_id,
        )
        return self._only(self._own([Ask(claim.job_id, command)]))

    def fail_many(self, errors: Iterable[tuple[Claim, Failure | BaseException | str]]) -> list[Outcome]:
        """End many attempts, each with its error."""
        return self._own(
            [Ask(claim.job_id, c.Fail(by=claim.actor, error=asking.failure_of(error))) for claim, error in errors]
        )

    def settle_many(self, asks: Iterable[Ask]) -> list[Outcome]:
        """Write what came of many attempts, of each its own: those that succeeded in one statement, then the others."""
        return [outcome for outcome in self._settle(asks, quietly=False) if outcome is not None]

    def settle_quietly(self, asks: Iterable[Ask]) -> list[Outcome | None]:
        """Do the same, and give None in the place of each receipt for a success: they are many, and cost to make."""
        return self._settle(asks, quietly=True)

    def _settle(self, asks: Iterable[Ask], *, quietly: bool) -> list[Outcome | None]:
        asked = list(asks)
        asking.check_batch(asked)
        succeeded = [place for place, ask in enumerate(asked) if isinstance(ask.command, c.Complete)]
        if len(succeeded) == len(asked):
            return self._own_all(asked, quietly=quietly) if asked else []
        others = [place for place, ask in enumerate(asked) if not isinstance(ask.command, c.Complete)]
        outcomes: dict[int, Outcome | None] = {}
        for places in (succeeded, others):
            written: list[Outcome | None] = []
            try:
                if places:
                    quiet = quietly and places is succeeded
                    written = self._own_all([asked[place] for place in places], quietly=quiet)
            except StoreError as problem:
                if not outcomes:
                    raise
                written = [problem] * len(places)
            outcomes.update(zip(places, written, strict=True))
        return [outcomes[place] for place in range(len(asked))]

    def release(
        self, claim: Claim, *, due: Moment | None = None, reason: str | None = None, request_id: str | None = None
    ) -> Receipt:
        """Give the job back uncharged, due now or later."""
        at, delay = split("due", due)
        command = c.Release(by=claim.actor, due=at, delay=delay, reason=reason, request_id=request_id)
        return self._only(self._own([Ask(claim.job_id, command)]))

    def release_many(
        self, claims: Iterable[Claim], *, due: Moment | None = None, reason: str | None = None
    ) -> list[Outcome]:
        """Give many jobs back."""
        at, delay = split("due", due)
        return self._own(
            [Ask(claim.job_id, c.Release(by=claim.actor, due=at, delay=delay, reason=reason)) for claim in claims]
        )

    def suspend(
        self,
        claim: Claim,
        key: str,
        *,
        until: WaitFor | str = WaitFor.SIGNAL,
        deadline: Moment | None = None,
        jobs: Sequence[str] = (),
        request_id: str | None = None,
    ) -> Receipt:
        """Wait for a signal, a timer or other jobs without holding the job. The answer is kept under `key`."""
        wait, timeout = asking.wait_of(key, until, deadline, jobs)
        asks = [Ask(claim.job_id, c.Suspend(by=claim.actor, wait=wait, timeout=timeout, request_id=request_id))]
        return self._only(self._write(Operation(lambda: ops.suspend(asks, self._forbidden))))

    def suspend_many(
        self,
        claims: Iterable[Claim],
        key: str,
        *,
        until: WaitFor | str = WaitFor.SIGNAL,
        deadline: Moment | None = None,
        jobs: Sequence[str] = (),
    ) -> list[Outcome]:
        """Let many jobs wait for the same."""
        wait, timeout = asking.wait_of(key, until, deadline, jobs)
        asks = [Ask(claim.job_id, c.Suspend(by=claim.actor, wait=wait, timeout=timeout)) for claim in claims]
        return self._many(Operation(lambda: ops.suspend(asks, self._forbidden)), asks)

    def note(
        self,
        job: Claim | str,
        note: e.AnyNote,
        *,
        expected_rev: int | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> Receipt:
        """Put a note on the log: as the owner of a claim, or as somebody else about a job."""
        job_id, actor = asking.speaker(job, by, self.actor)
        command = c.Note(by=actor, note=note, expected_rev=expected_rev, request_id=request_id)
        return self._only(self._own([Ask(job_id, command)]))

    def note_many(self, notes: Iterable[tuple[Claim, e.AnyNote]]) -> list[Outcome]:
        """Put notes on many logs, or many on one: in the order given."""
        return self._own([Ask(claim.job_id, c.Note(by=claim.actor, note=note)) for claim, note in notes])
