"""Reading, and the queues."""

from collections.abc import Iterable
from typing import Any

from leftfold import asking
from leftfold.core.job import Job
from leftfold.core.lifecycle import State
from leftfold.core.limits import SECOND, between, key, most, name, text
from leftfold.core.payload import to_payload
from leftfold.core.record import Record
from leftfold.engine.running import Running, one
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

    def pause(self, queue: str, *, reason: str | None = None, by: str | None = None) -> bool:
        """Let nobody claim from a queue. Tells whether it was not paused before."""
        name("queue", queue)
        text("reason", reason)
        key("actor", by)
        arguments = {"name": queue, "actor": by or self.actor, "reason": reason}
        return bool(self._write(Operation(lambda: one("pause", arguments))))

    def unpause(self, queue: str) -> bool:
        """Let a queue go on. Tells whether it was paused."""
        name("queue", queue)
        return bool(self._write(Operation(lambda: one("unpause", {"name": queue}))))

    def queues(self) -> Queues:
        """Give the queues there are."""
        return self._read(views.queues)

    def get(self, job_id: str) -> Job:
        """Give a job as it is now."""
        return self._read(views.get, asking.id_of(job_id))

    def history(self, job_id: str) -> Records:
        """Give a job's log."""
        return self._read(views.history, asking.id_of(job_id))

    def histories(self, job_ids: Iterable[str]) -> Histories:
        """Give the logs of many jobs in one look, each under its id."""
        wanted = [asking.id_of(job_id) for job_id in job_ids]
        most("jobs", wanted, asking.PAGE_MAX)
        return self._read(views.histories, wanted)

    def is_frozen(self, job_id: str) -> bool:
        """Tell whether `verify` froze a job: then nobody claims or changes it until `rebuild`."""
        return self._read(views.is_frozen, asking.id_of(job_id))

    def find(self, beginning: str) -> str:
        """Give the one job id that begins so."""
        return self._read(views.find, beginning)

    def list(
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
        return self._read(views.page, asked, limit, None if after is None else asking.id_of(after))

    def incidents(
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
        return self._read(views.incidents, asked, limit, after, is_open=is_open)

    def incident(self, beginning: str) -> Incident:
        """Give the one incident whose name begins so."""
        return self._read(views.incident, asking.incident_of(beginning))

    def next_due(self, queues: Iterable[str] | None = None, *, lately: Span = 0.0) -> float | None:
        """Give the seconds until another job of these queues becomes due, or None if none is known to.

        One that became due `lately`, so many seconds ago at most, counts as due now: who claimed just before would
        else neither have it nor hear of it.
        """
        wait = self._read(views.next_due, asking.names("queue", queues), microseconds("lately", lately))
        return None if wait is None else max(wait, 0) / SECOND

    def clock(self) -> float:
        """Give the store's time, in seconds since 1970."""
        return self._read(views.clock) / SECOND

    def beat(self, worker: str, told: Any) -> None:
        """Say that a worker lives, and what it wants known of itself."""
        key("worker", worker)
        arguments = {"name": worker, "told": bytes(to_payload("told", told)).decode()}
        self._write(Operation(lambda: one("beat", arguments), apart=True))

    def workers(self) -> Workers:
        """Give the workers that live, or died without a word."""
        return self._read(views.workers)

    def forget_worker(self, worker: str) -> None:
        """Take a worker off the list that has left."""
        key("worker", worker)
        self._write(Operation(lambda: one("forget_workers", {"name": worker}), apart=True))

    def counts(self) -> Counts:
        """Give how many jobs there are per queue, kind and state."""
        return self._read(views.counts)
