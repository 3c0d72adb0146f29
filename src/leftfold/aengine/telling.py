# Rendered from leftfold/engine by `make render`: change that one.
"""What clients, operators and keepers say about a job."""

from collections.abc import Iterable
from typing import Any

from leftfold import asking
from leftfold.aengine.running import Running
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import Who
from leftfold.core.limits import between
from leftfold.core.payload import to_payload
from leftfold.core.values import CancelMode, Failure
from leftfold.store import keeping, ops
from leftfold.store.ops import Ask, Outcome
from leftfold.store.query import Operation
from leftfold.store.replies import Claim, Receipt, Summary
from leftfold.times import Moment, microseconds, split


class Telling(Running):
    """What others than the owner say."""

    async def signal(
        self,
        job_id: str,
        key: str,
        payload: Any = None,
        *,
        expected_rev: int | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> Receipt:
        """Answer a wait, now or before it begins."""
        command = c.Signal(
            by=asking.actor_of(Who.CLIENT, by, self.actor),
            key=key,
            payload=to_payload("signal", payload),
            expected_rev=expected_rev,
            request_id=request_id,
        )
        return await self._tell(job_id, command)

    async def cancel(
        self,
        job_id: str,
        *,
        mode: CancelMode | str = CancelMode.SOFT,
        reason: str | None = None,
        expected_rev: int | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> Receipt:
        """Stop a job: ask its owner to (soft), or take it away at once (hard). Without an owner both end it."""
        command = c.Cancel(
            by=asking.actor_of(Who.CLIENT, by, self.actor),
            mode=asking.mode_of(mode),
            reason=reason,
            expected_rev=expected_rev,
            request_id=request_id,
        )
        return await self._tell(job_id, command)

    async def cancel_claim(self, claim: Claim, *, reason: str | None = None, request_id: str | None = None) -> Receipt:
        """Say as the owner that a request to cancel was heeded."""
        command = c.Cancel(by=claim.actor, reason=reason, request_id=request_id)
        return self._only(await self._own([Ask(claim.job_id, command)]))

    async def stall(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        expected_rev: int | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> Receipt:
        """Take a job from its owner: as an operator, or as a keeper once the lease has run out."""
        command = c.Stall(
            by=asking.actor_of(Who.OPERATOR, by, self.actor),
            reason=reason,
            expected_rev=expected_rev,
            request_id=request_id,
        )
        return await self._tell(job_id, command)

    async def requeue(
        self,
        job_id: str,
        *,
        due: Moment | None = None,
        reason: str | None = None,
        expected_rev: int | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> Receipt:
        """Make a job claimable again; to reopen a failed or dead-lettered one needs a reason."""
        at, delay = split("due", due)
        command = c.Requeue(
            by=asking.actor_of(Who.OPERATOR, by, self.actor),
            due=at,
            delay=delay,
            reason=reason,
            expected_rev=expected_rev,
            request_id=request_id,
        )
        return await self._tell(job_id, command)

    async def requeue_many(
        self,
        jobs: Iterable[Summary | str],
        *,
        due: Moment | None = None,
        reason: str | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> list[Outcome]:
        """Make many jobs claimable again. One given as a list showed it must not have changed since."""
        at, delay = split("due", due)
        command = c.Requeue(
            by=asking.actor_of(Who.OPERATOR, by, self.actor), due=at, delay=delay, reason=reason, request_id=request_id
        )
        outcomes = await self._tell_many(asking.asks_of(jobs, command))
        if self._bell:
            self._bell.ring()
        return outcomes

    async def remark_many(
        self,
        job_ids: Iterable[str],
        text: str,
        *,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> list[Outcome]:
        """Put on the logs of jobs what others should know; dead letters take it, too."""
        actor = asking.actor_of(Who.OPERATOR, by, self.actor)
        command = c.Note(by=actor, note=e.Remarked(text=text), request_id=request_id)
        return await self._tell_many(asking.asks_of(job_ids, command))

    async def resolve_many(
        self,
        jobs: Iterable[Summary | str],
        *,
        reason: str,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> list[Outcome]:
        """Settle dead letters: they stay as they are, and nobody is asked to look at them any more."""
        actor = asking.actor_of(Who.OPERATOR, by, self.actor)
        command = c.Note(by=actor, note=e.Resolved(reason=reason), request_id=request_id)
        return await self._tell_many(asking.asks_of(jobs, command))

    async def dead_letter(
        self,
        job: Claim | str,
        error: Failure | BaseException | str,
        *,
        reason_code: Reason | str = Reason.POLICY_VIOLATION,
        stage: Stage | str = Stage.EXEC,
        expected_rev: int | None = None,
        request_id: str | None = None,
        by: c.Actor | str | None = None,
    ) -> Receipt:
        """Set a job aside: as the owner of a claim, or as an operator."""
        job_id, actor = asking.speaker(job, by, self.actor, Who.OPERATOR)
        command = c.DeadLetter(
            by=actor,
            error=asking.failure_of(error),
            reason_code=asking.reason_of(reason_code),
            stage=asking.stage_of(stage),
            expected_rev=expected_rev,
            request_id=request_id,
        )
        return await self._tell(job_id, command)

    async def expire(self, job_id: str, *, request_id: str | None = None, by: c.Actor | str | None = None) -> Receipt:
        """End a wait whose deadline has passed."""
        return await self._tell(job_id, c.Expire(by=asking.actor_of(Who.KEEPER, by, self.actor), request_id=request_id))

    async def resume(self, job_id: str, *, request_id: str | None = None, by: c.Actor | str | None = None) -> Receipt:
        """End a wait for other jobs once they have all ended."""
        actor, found = asking.actor_of(Who.KEEPER, by, self.actor), asking.id_of(job_id)
        return self._only(await self._write(Operation(lambda: ops.resume(found, actor, request_id, self._forbidden))))

    async def reap(
        self, *, limit: int = 100, watched: tuple[float, float] | None = None, by: c.Actor | str | None = None
    ) -> list[Outcome]:
        """Take jobs from owners whose leases ran out, and end waits whose deadlines passed: some of them.

        Safe to call anywhere, at any time, by any number of keepers. `watched` is a stretch of the store's time, as
        `clock()` told it, over which the caller knows that its clock did not jump: leases that ran out before are given
        a lease more, and none is judged by what the clock says behind it.
        """
        between("limit", limit, 1, asking.BATCH_MAX)
        stretch = (
            keeping.Watched() if watched is None else keeping.Watched(*(microseconds("watched", t) for t in watched))
        )
        actor = asking.actor_of(Who.KEEPER, by, self.actor)
        return await self._write(Operation(lambda: keeping.reap(actor, limit, stretch, self._forbidden)))
