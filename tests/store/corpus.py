"""The golden corpus: logs as a store kept them one day, and the jobs that they must come to for ever."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from leftfold.core.events import Event
from leftfold.core.job import Job, logged
from leftfold.core.record import GENESIS, Record, seal
from leftfold.store.ops import EVENT_COLUMNS, event_rows
from leftfold.store.rows import record_of

FOLDER: Final = Path(__file__).parent / "golden"
CHECKSUMS: Final = FOLDER / "checksums.txt"
EVENTS: Final = ".events.jsonl"
JOB: Final = ".job.json"


class Kept(NamedTuple):
    """A log as it was stored, with the seal of each record, and what it must come to."""

    records: tuple[Record, ...]
    seals: tuple[bytes, ...]
    job: Any


def names() -> list[str]:
    """Give the names of the logs."""
    return sorted(file.name.removesuffix(EVENTS) for file in FOLDER.glob(f"*{EVENTS}"))


def read(name: str) -> Kept:
    """Read a log, with the code that reads the events table."""
    records, seals = [], []
    for line in (FOLDER / f"{name}{EVENTS}").read_bytes().splitlines():
        columns = msgspec.json.decode(line)
        # The first logs were kept with whole hashes.
        seals.append(seal(bytes.fromhex(columns.get("seal") or columns["hash"])))
        records.append(record_of(columns["job_id"], [columns.get(column) for column in EVENT_COLUMNS[1:]]))
    return Kept(tuple(records), tuple(seals), msgspec.json.decode((FOLDER / f"{name}{JOB}").read_bytes()))


def write(name: str, job: Job, records: Sequence[Record]) -> None:
    """Write a log that is not there yet."""
    lines = []
    for row in event_rows(records, GENESIS):
        columns = dict(zip(EVENT_COLUMNS, row, strict=True))
        lines.append(msgspec.json.encode({**columns, "seal": bytes(row[-1]).hex()}))  # type: ignore[arg-type]
    (FOLDER / f"{name}{EVENTS}").write_bytes(b"\n".join(lines) + b"\n")
    (FOLDER / f"{name}{JOB}").write_bytes(msgspec.json.format(msgspec.json.encode(spelled_out(logged(job)))) + b"\n")


def spelled_out(value: Any) -> Any:
    """Give a value with every field that it has today, those that equal their default too."""
    match value:
        case Raw():
            return {"json": bytes(value).decode()}
        case Struct():
            fields = {name: spelled_out(getattr(value, name)) for name in value.__struct_fields__}
            return {"event": value.wire, **fields} if isinstance(value, Event) else fields
        case dict():
            return {key: spelled_out(item) for key, item in value.items()}
        case tuple() | list():
            return [spelled_out(item) for item in value]
        case _:
            return value


def missing(wanted: Any, found: Any, where: str = "job") -> list[str]:
    """Say what was kept and is not found again. A field that is found and was not kept is a newer one."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        gone = [f"{where}.{key} is gone" for key in wanted if key not in found]
        shared = [key for key in wanted if key in found]
        return gone + [problem for key in shared for problem in missing(wanted[key], found[key], f"{where}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            problem
            for place, (one, other) in enumerate(zip(wanted, found, strict=True))
            for problem in missing(one, other, f"{where}[{place}]")
        ]
    return [] if wanted == found else [f"{where} is {found!r}, and was {wanted!r}"]


def checksums() -> dict[str, str]:
    """Give the checksum of each file, as it is now."""
    files = sorted([*FOLDER.glob(f"*{EVENTS}"), *FOLDER.glob(f"*{JOB}")])
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
