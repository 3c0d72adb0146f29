"""What stands in a store, without what differs between two runs of the same: ids and tokens."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.crash.rows import Repeated, Row
from tests.crash.scenes import shell_of
from tests.places import logs_of

from leftfold import Claim, Engine, Queue, Receipt
from leftfold.core.errors import CorruptLogError, LeftfoldError
from leftfold.core.record import Record
from leftfold.store.audit import What
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
    """Everything that the engine shows of a store, and who changed what stands."""

    jobs: tuple[Portrait, ...]
    queues: tuple[Queue, ...]
    consumers: tuple[Consumer, ...]
    findings: tuple[tuple[What, str], ...]  # with the kind of the job
    frozen: tuple[str, ...]
    maintained: tuple[tuple[object, ...], ...]

    def by_kind(self) -> dict[str, list[Portrait]]:
        found: dict[str, list[Portrait]] = {}
        for job in self.jobs:
            found.setdefault(job.kind, []).append(job)
        return found


def picture_of(engine: Engine, row: Row) -> Picture:
    """Read everything, and hold rows, logs, chains and counters to each other on the way.

    Where the scene is harmed, what is wrong is a part of the picture.
    """
    if not row.harmed:
        check(engine)
    jobs = {job.id: job for job in engine.list(limit=1000).jobs}
    names = {job_id: job.kind for job_id, job in jobs.items()}
    findings = engine.verify(freeze=False).findings if row.harmed else ()
    portraits = []
    for job_id, summary in jobs.items():
        log = tuple(
            Line(
                record.at, record.event.wire, record.who.value, record.actor, record.request_id,
                _masked(record.data, names),
            )
            for record in _history(engine, job_id, row)
        )  # fmt: skip
        rev = 0 if row.repeated is Repeated.RENEWS else summary.rev
        shown = (
            summary.queue, summary.key, summary.state, summary.version, rev, summary.attempt, summary.failures,
            summary.due, summary.owner, summary.until, summary.deadline, summary.cancel_requested,
        )  # fmt: skip
        portraits.append(Portrait(summary.kind, log, shown))
    return Picture(
        tuple(sorted(portraits, key=repr)),
        tuple(sorted(engine.queues(), key=repr)),
        tuple(engine.consumers()),
        tuple(sorted((found.what, names.get(found.job_id or "", "")) for found in findings)),
        tuple(sorted(job.kind for job in jobs.values() if job.frozen)),
        _maintained(engine, names) if row.harmed else (),
    )


def _history(engine: Engine, job_id: str, row: Row) -> Sequence[Record]:
    try:
        return engine.history(job_id)
    except CorruptLogError:
        assert row.harmed, "nobody harmed this log"
        return ()


def _maintained(engine: Engine, names: Mapping[str, str]) -> tuple[tuple[object, ...], ...]:
    """Give who changed what stands, and why; in a file, nobody may still be at it."""
    with shell_of(engine) as shell:
        if shell.place.is_file:
            assert shell.ask("SELECT * FROM maintenance WHERE open") == [], "what stands may be changed by anybody"
        return tuple((actor, _masked(reason, names)) for actor, reason in shell.maintained())


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
    kinds = {job.kind for picture in (found, before, after) for job in picture.jobs}
    for kind in kinds:
        assert found.by_kind().get(kind) in (before.by_kind().get(kind), after.by_kind().get(kind))
    return None
