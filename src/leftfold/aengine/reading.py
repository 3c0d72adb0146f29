# Rendered from leftfold/engine by `make render`: change that one.
"""Reading, and the queues."""

from collections.abc import Iterable
from typing import Any

from leftfold import asking
from leftfold.aengine.running import Running, one
from leftfold.core.job import Job
from leftfold.core.lifecycle import State
from leftfold.core.limits import SECOND, between, key, most, name, text
from leftfold.core.payload import to_payload
from leftfold.core.record import Record
from leftfold.store import views
from leftfold.store.query import Operation
from leftfold.store.replies import Count, Incident, Page, Queue, WorkerView
from leftfold.times import Span, microseconds

# `list` is a method here, so what the others give is named.
Counts = list[Count]
Queues = list[Queue]
Records = list[Record]
Histories = dict[str, Records]
Workers = list[WorkerView]
Incidents = list[Incident]


class Reading(Running):
    """Reading jobs, and the queues."""

    async def pause(self, queue: str, *, reason: str | None = None, by: str | None = None) -> bool:
        """Let nobody claim from a queue. Tells whether it was not paused before."""
        name("queue", queue)
        text("reason", reason)
        key("actor", by)
        arguments = {"name": queue, "actor": by or self.actor, "reason": reason}
        return bool(await self._write(Operation(lambda: one("pause", arguments))))

    async def unpause(self, queue: str) -> bool:
        """Let a queue go on. Tells whether it was paused."""
        name("queue", queue)
        return bool(await self._write(Operation(lambda: one("unpause", {"name": queue}))))

    async def queues(self) -> Queues:
        """Give the queues there are."""
        return await self._read(views.queues)

    async def get(self, job_id: str) -> Job:
        """Give a job as it is now."""
        return await self._read(views.get, asking.id_of(job_id))

    async def history(self, job_id: str) -> Records:
        """Give a job's log."""
        return await self._read(views.history, asking.id_of(job_id))

    async def histories(self, job_ids: Iterable[str]) -> Histories:
        """Give the logs of many jobs in one look, each under its id."""
        wanted = [asking.id_of(job_id) for job_id in job_ids]
        most("jobs", wanted, asking.PAGE_MAX)
        return await self._read(views.histories, wanted)

    async def is_frozen(self, job_id: str) -> bool:
        """Tell whether `verify` froze a job: then nobody claims or changes it until `rebuild`."""
        return await self._read(views.is_frozen, asking.id_of(job_id))

    async def find(self, beginning: str) -> str:
        """Give the one job id that begins so."""
        return await self._read(views.find, beginning)

    async def list(
        self,
        *,
        states: Iterable[State | str] | State | str | None = None,
        queue: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        owner: str | None = None,
        incident: str | None = None,
        resolved: bool | None = None,
        ids: Iterable[str] | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """Give jobs, newest first. `after` is the `next` of the page before.

        `resolved` asks for dead letters that are settled, or (false) for all jobs but these.
        """
        between("limit", limit, 1, asking.PAGE_MAX)
        asked = asking.filter_of(
            states, queue=queue, kind=kind, tenant=tenant, key=key, correlation_id=correlation_id, owner=owner,
            incident=incident, resolved=resolved, ids=ids,
        )  # fmt: skip
        return await self._read(views.page, asked, limit, None if after is None else asking.id_of(after))

    async def incidents(
        self,
        *,
        incident: str | None = None,
        kind: str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        resolved: bool | None = False,
        limit: int = 100,
        after: Incident | None = None,
    ) -> Incidents:
        """Give the dead letters by what went wrong, the last one seen first. `after` is the last one given before.

        `resolved` asks for those of which all letters are settled; None asks for all. `incident` is the name of one, or
        its beginning.
        """
        between("limit", limit, 1, asking.PAGE_MAX)
        asked = asking.letters_of(incident, queue=queue, kind=kind, tenant=tenant)
        is_open = None if resolved is None else not resolved
        return await self._read(views.incidents, asked, limit, after, is_open=is_open)

    async def incident(self, beginning: str) -> Incident:
        """Give the one incident whose name begins so."""
        return await self._read(views.incident, asking.incident_of(beginning))

    async def next_due(self, queues: Iterable[str] | None = None, *, lately: Span = 0.0) -> float | None:
        """Give the seconds until another job of these queues becomes due, or None if none is known to.

        One that became due `lately`, so many seconds ago at most, counts as due now: who claimed just before would
        else neither have it nor hear of it.
        """
        wait = await self._read(views.next_due, asking.names("queue", queues), microseconds("lately", lately))
        return None if wait is None else max(wait, 0) / SECOND

    async def clock(self) -> float:
        """Give the store's time, in seconds since 1970."""
        return await self._read(views.clock) / SECOND

    async def beat(self, worker: str, told: Any) -> None:
        """Say that a worker lives, and what it wants known of itself."""
        key("worker", worker)
        arguments = {"name": worker, "told": bytes(to_payload("told", told)).decode()}
        await self._write(Operation(lambda: one("beat", arguments), apart=True))

    async def workers(self) -> Workers:
        """Give the workers that live, or died without a word."""
        return await self._read(views.workers)

    async def forget_worker(self, worker: str) -> None:
        """Take a worker off the list that has left."""
        key("worker", worker)
        await self._write(Operation(lambda: one("forget_workers", {"name": worker}), apart=True))

    async def counts(self) -> Counts:
        """Give how many jobs there are per queue, kind and state."""
        return await self._read(views.counts)
