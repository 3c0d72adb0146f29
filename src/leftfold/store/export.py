"""Whole jobs as lines of JSON, to be kept, moved and checked without a store.

The first line says what this is, then one line per job: its log exactly as it is stored, the hash that the log ends
with, and what only its row knew. The last line counts them and carries the hash of all lines before it, so that a file
that was cut short or edited says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from leftfold.core import limits
from leftfold.core.errors import CorruptLogError, ValidationError
from leftfold.core.frozen import Frozen
from leftfold.store.audit import Examined, Finding, Kept, What, examine, rebuilt
from leftfold.store.ops import EVENT_COLUMNS
from leftfold.store.query import Query, Steps, ids
from leftfold.store.rows import COLUMNS, Row

FORMAT: Final = 1
_FIELDS: Final = EVENT_COLUMNS[1:]


class Head(Frozen, tag="leftfold export", tag_field="is"):
    """The first line."""

    format: int
    at: int


class Logged(Frozen):
    """An entry: its columns, the seal in hexadecimal. A name that the store lost is null."""

    version: int
    at: int
    format: int
    event: str | None
    who: str | None = None
    actor: str | None
    request_id: str | None = None
    request_hash: str | None = None
    data: str
    seal: str


class Beside(Frozen):
    """What stands in a row and on no log."""

    until: int | None = None
    renewals: int = 0
    renewed_by: str | None = None
    renewed_hash: str | None = None


class Line(Frozen, tag="job", tag_field="is"):
    """A job. `head` is null if there was no row."""

    id: str
    log: tuple[Logged, ...]
    head: str | None
    beside: Beside


class Foot(Frozen, tag="end", tag_field="is"):
    """The last line."""

    jobs: int
    events: int
    sha256: str


class Imported(Frozen):
    """What became of an import: how many jobs came in, how many were there already, and which were refused, and why."""

    imported: int
    present: int
    refused: tuple[Finding, ...]

    def __add__(self, other: "Imported") -> "Imported":
        return Imported(
            imported=self.imported + other.imported,
            present=self.present + other.present,
            refused=self.refused + other.refused,
        )


class Writer:
    """Makes the lines."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._hash = sha256()
        self._jobs = self._events = 0

    def _spelled(self, line: Head | Line | Foot) -> str:
        try:
            text = msgspec.json.encode(line) + b"\n"
        except UnicodeEncodeError as problem:
            name = getattr(line, "id", "")
            raise CorruptLogError(f"job {name} holds bytes that are no text: leave it out of the export") from problem
        self._hash.update(text)
        return text.decode()

    def head(self) -> str:
        """Give the first line."""
        return self._spelled(Head(format=FORMAT, at=self._at))

    def job(self, kept: Kept) -> str:
        """Give the line of a job."""
        self._jobs += 1
        self._events += kept.size
        log = tuple(
            Logged(**dict(zip(_FIELDS, (*columns[:-1], bytes(columns[-1]).hex()), strict=True)))
            for columns in kept.events
        )
        row = kept.row
        known = {} if row is None else {name: getattr(row, name) for name in Beside.__struct_fields__}
        beside = Beside(**known)
        return self._spelled(Line(id=kept.job_id, log=log, head=row and row.head.hex(), beside=beside))

    def foot(self) -> str:
        """Give the last line."""
        return self._spelled(Foot(jobs=self._jobs, events=self._events, sha256=self._hash.hexdigest()))


_LINE: Final = msgspec.json.Decoder(Head | Line | Foot)


def read(lines: Iterable[str]) -> Iterator[Kept]:
    """Give the jobs of an export. What is no whole export raises, at the latest when all its jobs were given."""
    hashed = sha256()
    jobs = events = 0
    ended, last = False, ""
    for number, text in enumerate(lines, start=1):
        line = _decoded(number, text)
        if ended or isinstance(line, Head) is not (number == 1):
            raise ValidationError(f"line {number} of the export is not what should stand there")
        match line:
            case Head(format=stored):
                if stored > FORMAT:
                    raise ValidationError(f"the export has format {stored}, this version reads {FORMAT}: upgrade it")
            case Foot():
                ended = True
                if (line.jobs, line.events, line.sha256) != (jobs, events, hashed.hexdigest()):
                    raise ValidationError("the export was changed: its last line does not fit the ones before it")
            case Line():
                if not _is_id(line.id) or line.id <= last:
                    raise ValidationError(f"line {number} of the export is not what should stand there: ids rise")
                last = line.id
                kept = _kept(number, line)
                jobs += 1
                events += kept.size
                yield kept
        hashed.update(text.encode())
    if not ended:
        raise ValidationError("the export was cut short: it has no last line")


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _decoded(number: int, text: str) -> Head | Line | Foot:
    try:
        line: Head | Line | Foot = _LINE.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as problem:
        raise ValidationError(f"line {number} is no line of an export: {problem}") from problem
    return line


def _kept(number: int, line: Line) -> Kept:
    try:
        events = [(*(getattr(each, name) for name in _FIELDS[:-1]), bytes.fromhex(each.seal)) for each in line.log]
    except ValueError as problem:
        raise ValidationError(f"line {number} of the export holds an event without a seal") from problem
    kept = Kept(line.id, None, None, events)
    if line.head is None:
        return kept
    # The row is not in the export: it is what the log comes to, with the head and what else only the row knew.
    sound = examine(kept)
    try:
        row = rebuilt(sound)._replace(head=bytes.fromhex(line.head), **asdict(line.beside))
    except (CorruptLogError, ValueError):
        row = _nothing_known(line)
    return kept._replace(row=row)


def _nothing_known(line: Line) -> Row:
    version = line.log[-1].version if line.log else 0
    columns: dict[str, Any] = {**dict.fromkeys(COLUMNS), "id": line.id, "version": version, "head": b""}
    return Row(**columns)


def batches(lines: Iterable[str], size: int) -> Iterator[list[Examined]]:
    """Give the jobs of an export, so many at a time, and what a look at each of them gave."""
    jobs = map(examine, read(lines))
    while batch := list(islice(jobs, size)):
        yield batch


def bring_in(jobs: Sequence[Examined]) -> Steps[Imported]:
    """Write whole jobs with their logs. One that is there already, just as it is, counts as present."""
    heads: dict[str, bytes | None] = dict((yield ids("heads", [each.kept.job_id for each in jobs])))
    refused = [each.findings[0] for each in jobs if each.findings]
    present = [each for each in jobs if not each.findings and _head(heads, each) == each.head]
    refused += [
        _refusal(each, What.ROW, "a job with this id is there, with another log")
        for each in jobs
        if not each.findings and _head(heads, each) not in {None, each.head}
    ]
    refused += [
        _refusal(each, What.NO_ROW, "its events are there, and its row is lost: `leftfold rebuild --all` makes it anew")
        for each in jobs
        if not each.findings and heads.get(each.kept.job_id, b"") is None
    ]
    new = [each for each in jobs if not each.findings and each.kept.job_id not in heads]
    refused += [_refusal(each, What.ROW, why) for each in new if (why := _impossible(each.kept.row))]
    new = [each for each in new if not _impossible(each.kept.row)]
    rows = [rebuilt(each) for each in new]
    made = {row[0] for row in (yield Query("insert", columns=COLUMNS, rows=rows))} if rows else set()
    events = [(each.kept.job_id, *columns) for each in new if each.kept.job_id in made for columns in each.kept.events]
    if events:
        yield Query("append", columns=EVENT_COLUMNS, rows=events)
    refused += [
        _refusal(each, What.KEY, "another live job holds its key") for each in new if each.kept.job_id not in made
    ]
    return Imported(imported=len(made), present=len(present), refused=tuple(refused))


def _impossible(row: Row | None) -> str | None:
    """Say what of what stands beside the log, which no hash covers, no store of ours can have written."""
    if row is None:
        return None
    try:
        limits.between("renewals", row.renewals, 0, 2**31 - 1)
        limits.between("the end of the lease", row.until or 0, 0, limits.TIME_MAX)
        limits.key("the request of the last renewal", row.renewed_by)
        limits.key("the hash of that request", row.renewed_hash)
    except ValidationError as problem:
        return str(problem)
    return None


def _head(heads: dict[str, bytes | None], each: Examined) -> bytes | None:
    head = heads.get(each.kept.job_id)
    return None if head is None else bytes(head)


def _refusal(each: Examined, what: What, why: str) -> Finding:
    return Finding(what=what, detail=why, job_id=each.kept.job_id)
