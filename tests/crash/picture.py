"""What stands in a store, without what differs between two runs of the same: ids and tokens."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from tests.crash.rows import Repeated, Row
from tests.places import logs_of

from leftfold import Claim, Engine, Queue, Receipt
from leftfold.core.errors import LeftfoldError
from leftfold.store.feed import Consumer

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = re.compile(r'"token":"[^"]*"')


class Line(NamedTuple):
    """A record of a log."""

    at: int
    event: str
    who: str
    actor: str
    request_id: str | None
    data: str


class Portrait(NamedTuple):
    """A job: its whole log, and what its row says beside it."""

    kind: str
    log: tuple[Line, ...]
    row: tuple[object, ...]


class Picture(NamedTuple):
    """Everything that the engine shows of a store."""

    jobs: tuple[Portrait, ...]
    queues: tuple[Queue, ...]
    consumers: tuple[Consumer, ...]

    def by_kind(self) -> dict[str, list[Portrait]]:
        found: dict[str, list[Portrait]] = {}
        for job in self.jobs:
            found.setdefault(job.kind, []).append(job)
        return found


def picture_of(engine: Engine, row: Row) -> Picture:
    """Read everything, and hold rows, logs, chains and counters to each other on the way."""
    check(engine)
    jobs = {job.id: job for job in engine.list(limit=1000).jobs}
    names = {job_id: job.kind for job_id, job in jobs.items()}
    portraits = []
    for job_id, summary in jobs.items():
        log = tuple(
            Line(
                record.at, record.event.wire, record.who.value, record.actor, record.request_id,
                _masked(record.data, names),
            )
            for record in engine.history(job_id)
        )  # fmt: skip
        rev = 0 if row.repeated is Repeated.RENEWS else summary.rev
        shown = (
            summary.queue, summary.key, summary.state, summary.version, rev, summary.attempt, summary.failures,
            summary.due, summary.owner, summary.until, summary.deadline, summary.cancel_requested,
        )  # fmt: skip
        portraits.append(Portrait(summary.kind, log, shown))
    return Picture(
        tuple(sorted(portraits, key=repr)), tuple(sorted(engine.queues(), key=repr)), tuple(engine.consumers())
    )


def check(engine: Engine) -> None:
    """Demand that the store is consistent."""
    verdict = engine.verify(freeze=False)
    assert verdict.is_clean, verdict.findings
    logs_of(engine)


def _masked(data: str, names: Mapping[str, str]) -> str:
    return _TOKEN.sub('"token":"…"', _ID.sub(lambda match: names.get(match[0], "an unknown job"), data))


def gist(answer: object) -> object:
    """Give what two answers to one request must have in common."""
    match answer:
        case list() | tuple():
            return [gist(each) for each in answer]
        case Receipt():
            return answer.state, answer.version, answer.attempt
        case Claim():
            return answer.kind, answer.attempt, answer.owner
        case LeftfoldError():
            return type(answer)
        case _:
            return type(answer)  # whether a queue was paused before is answered otherwise the second time


def happened(found: Picture, before: Picture, after: Picture, *, whole: bool) -> bool | None:
    """Tell whether all of it happened, or nothing (None: some jobs did, where each is on its own), or fail."""
    if found == after:
        return True
    if found == before:
        return False
    assert not whole, "some of it happened, and some of it did not"
    assert found[1:] in {before[1:], after[1:]}
    for kind, jobs in found.by_kind().items():
        assert jobs in (before.by_kind().get(kind, []), after.by_kind()[kind])
    return None
