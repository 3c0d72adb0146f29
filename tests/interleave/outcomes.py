"""What two calls came to, in words that do not depend on ids, tokens and numbers of a set-up."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from tests.interleave.gates import Answer
from tests.interleave.scenes import Scene, tag_of

from leftfold import Engine
from leftfold.core import events as e
from leftfold.core.commands import digest
from leftfold.core.errors import CorruptLogError, LeftfoldError, StoreError
from leftfold.core.job import Job
from leftfold.core.record import Record
from leftfold.engine.running import one
from leftfold.store.query import Operation, Steps, ids
from leftfold.store.replies import Summary
from leftfold.store.rows import Log, read_logs

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
#: A token or its digest: as a field, or first of what is remembered of a claim.
_TOKEN: Final = re.compile(r'(token\\?":\\?"|^\["\[\\")([A-Za-z0-9_-]+)(?=\\?")')


class Outcome(NamedTuple):
    """The answers, and what stands in the store: by the names of the jobs."""

    left: str
    right: str
    jobs: Mapping[str, str]
    beside: str  # the queue, what is remembered of requests, what a consumer gets

    def by_job(self, batches: tuple[bool, bool]) -> frozenset[tuple[str, ...]]:
        """Give what became of each of two jobs and of its key, together with what both sides were told about it.

        A batch tells of one behind the other, on the right side in the opposite order; who is none, of the job alone.
        """
        consumed = [each for each in msgspec.json.decode(self.beside) if isinstance(each, list)]  # a job and a version
        both = [each for each in msgspec.json.decode(self.beside) if each not in consumed]
        told: dict[str, list[str]] = {"job": [], "other": [], "both": [f"beside: {both}"]}
        for name, version in consumed:
            told.get(name, told["both"]).append(f"{name}: {version} was consumed")
        sides = (("left", self.left, ("job", "other")), ("right", self.right, ("other", "job")))
        for (side, answer, names), is_batch in zip(sides, batches, strict=True):
            answers = msgspec.json.decode(answer)
            if not is_batch:
                told["job"].append(f"{side}: {answer}")
            elif isinstance(answers, list):
                for name, each in zip(names, answers, strict=True):
                    told[name].append(f"{side}: {msgspec.json.encode(each).decode()}")
            else:  # it was refused as a whole
                told["both"].append(f"{side}: {answer}")
        for name, became in self.jobs.items():
            about = "job" if ", key.N" in name else "other" if ", fellow.N" in name else name
            told.get(about, told["both"]).append(f"{name}: {became}")
        return frozenset((name, *sorted(words)) for name, words in told.items())

    def __str__(self) -> str:
        jobs = "".join(f"\n    {name}: {told}" for name, told in sorted(self.jobs.items()))
        return f"\n  left: {self.left}\n  right: {self.right}{jobs}\n  beside: {self.beside}"


class BrokenError(Exception):
    """What stands in the store cannot be."""

    def __init__(self, queue: str, why: str) -> None:
        super().__init__(f"in {queue}: {why}")
        self.queue = queue


def read_jobs(engine: Engine, job_ids: Iterable[str]) -> dict[str, Log]:
    """Read logs in one statement, each chain followed to the head that stands in the row."""
    logs = read_logs(engine.store.run(Operation(lambda: _load(job_ids), apart=True, reads=True)))
    for job_id, log in logs.items():
        if isinstance(log, CorruptLogError):
            raise BrokenError(job_id, f"the log cannot be true: {log}")
    return {job_id: log for job_id, log in logs.items() if isinstance(log, Log)}


def _load(job_ids: Iterable[str]) -> Steps[list[Any]]:
    return (yield ids("load", list(job_ids)))


def outcome_of(
    engine: Engine, scene: Scene, answers: tuple[Answer, Answer], asks: frozenset[str], known: set[str]
) -> Outcome:
    """Say what two calls came to, and put the jobs that we were told of to the known ones.

    `asks` names what else the calls are about: the queue, a request that is remembered, or a consumer of the feed.
    """
    told = [msgspec.json.encode(_told(answer), enc_hook=_errors_by_class).decode() for answer in answers]
    found = read_jobs(engine, sorted({scene.job, scene.other, *_UUID.findall("".join(told))}))
    known.update(found)
    words = _Words(scene, found)
    jobs = {words.names[job_id]: words.said(_log(log)) for job_id, log in found.items()}
    beside: list[Any] = []
    if "request" in asks:
        named = {"tenant": "", "request_id": scene.request}
        remembered = engine.store.run(Operation(lambda: one("recall", named), apart=True, reads=True))
        beside += [response for _, response in remembered]
    if "queue" in asks:
        beside += engine.store.run(Operation(lambda: _paused(scene), apart=True, reads=True))
    if "feed" in asks:
        later = [(record.job_id, record.version) for record in engine.follow(scene.named("consumer"))]
        consumed = [event for event in [*scene.consumed, *later] if event[0] in found]
        check_order(scene.queue, consumed)
        beside += sorted(consumed)  # those of several jobs come in any order
    return Outcome(words.named(told[0]), words.named(told[1]), jobs, words.said(beside))


def check_order(queue: str, consumed: Iterable[tuple[str, int]]) -> None:
    """Demand that a consumer was given the events of each job one behind the other, and none twice."""
    last: dict[str, int] = {}
    for job_id, version in consumed:
        if version <= last.get(job_id, 0):
            raise BrokenError(queue, f"a consumer was given event {version} of a job behind event {last[job_id]}")
        last[job_id] = version


def _paused(scene: Scene) -> Steps[list[Any]]:
    return [row[0] for row in (yield ids("paused", [scene.job]))]


def _log(log: Log) -> Any:
    lease = log.job.lease and log.job.lease.until
    beside = [log.job.rev, lease, sorted(log.job.renewed_under), log.frozen_at is not None]
    return [beside, list(map(_event, log.records))]


def _told(answer: Answer) -> Any:
    if answer.raised is None:
        return answer.given
    name = type(answer.raised).__name__
    expected = isinstance(answer.raised, LeftfoldError) and not isinstance(answer.raised, StoreError)
    return f"raised {name}" if expected else f"raised {name}: {answer.raised}"


def _event(record: Record) -> Any:
    return [record.version, record.event.wire, record.who, record.actor, record.request_id, record.data]


class _Words:
    """Names for the jobs, and for the leases by the claim that they began with."""

    def __init__(self, scene: Scene, found: Mapping[str, Log]) -> None:
        self._tag = tag_of(scene.number)
        self.names = {scene.job: "job", scene.other: "other"}
        for job_id in sorted(set(found) - set(self.names)):
            name = f"new of {found[job_id].records[0].actor}, {found[job_id].job.spec.key}".replace(self._tag, "N")
            again = sum(1 for known in self.names.values() if known.startswith(name))
            self.names[job_id] = f"{name} {again + 1}"
        self._leases: dict[str, str] = {}
        for job_id, name in self.names.items():
            for record in found[job_id].records if job_id in found else ():
                if isinstance(record.event, e.Claimed):
                    self._leases.setdefault(record.event.token, f"lease of {name} from {record.version}")

    def said(self, value: Any) -> str:
        """Give a value as text, with names in it."""
        return self.named(msgspec.json.encode(value).decode())

    def named(self, text: str) -> str:
        """Put names into a text."""
        text = _UUID.sub(lambda match: self.names.get(match[0], "a job of another scene"), text)
        text = _TOKEN.sub(lambda match: f"{match[1]}{self._lease(match[2])}", text)
        return text.replace(self._tag, "N")

    def _lease(self, token: str) -> str:
        return self._leases.get(token) or self._leases.get(digest(token)) or "nobody's"


def _errors_by_class(value: Any) -> Any:
    if isinstance(value, LeftfoldError):  # an outcome of one of a batch
        return _told(Answer(raised=value))
    raise NotImplementedError(f"{value!r} is no part of an answer")


_PAGE: Final = 1000


def check_whole(engine: Engine, known: Iterable[str]) -> None:
    """Hold rows, logs and counters of all jobs to each other, and demand that there are none but the known ones."""
    counted: Counter[tuple[str, str, str]] = Counter()
    left = set(known)
    after = None
    while True:
        page = engine.list(limit=_PAGE, after=after)
        logs = read_jobs(engine, [summary.id for summary in page.jobs])
        for summary in page.jobs:
            if logs[summary.id].frozen_at is None:  # else its row is what it was frozen for
                _check_row(summary, logs[summary.id].job)
            counted[summary.queue, summary.kind, summary.state.value] += 1
        unknown = set(logs) - left
        if unknown:
            raise BrokenError(logs[min(unknown)].job.spec.queue, "there is a job that nobody was told of")
        left -= set(logs)
        after = page.next
        if after is None:
            break
    told = {(count.queue, count.kind, count.state.value): count.jobs for count in engine.counts()}
    for queue, kind, state in sorted(told.keys() | counted.keys()):
        if told.get((queue, kind, state), 0) != counted[queue, kind, state]:
            raise BrokenError(queue, f"the counter of {kind} that are {state} is off")


def _check_row(summary: Summary, job: Job) -> None:
    lease = job.lease
    row = (summary.state, summary.version, summary.rev, summary.attempt, summary.failures, summary.due, summary.owner)
    log = (job.state, job.version, job.rev, job.attempt, job.failures, job.due, lease and lease.owner)
    spec = job.spec
    if row != log or (summary.kind, summary.queue, summary.key) != (spec.kind, spec.queue, spec.key):
        raise BrokenError(summary.queue, f"a row is not what its log comes to: {row}, not {log}")
