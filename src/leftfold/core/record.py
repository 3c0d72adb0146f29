"""A record: an event as it stands on the log, with who said it and when, and the hash that seals it.

The hash covers the stored text of each field behind its length in bytes, so that a database computes the
same hash from its own columns, and so that no two records share their bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from leftfold.core.errors import BrokenChainError, CorruptLogError
from leftfold.core.events import BY_WIRE, AnyEvent, Claimed, Enqueued, Succeeded
from leftfold.core.frozen import Frozen
from leftfold.core.lifecycle import Who
from leftfold.core.payload import NULL
from leftfold.core.retry import DEFAULT_POLICY

#: What the first record of every log is chained to.
GENESIS: Final = bytes(32)

#: How much of its hash each record carries on the log. The whole hash of the last one stands in the job's row.
SEAL_BYTES: Final = 8

#: The format that events are written in. A change that an added field with a default cannot express raises it, and so
#: does a new event, from the first release on: who does not know a format waits for somebody who does.
FORMAT: Final = 1

#: (event, format) → how the stored fields of that format become those of the next. They are kept for ever.
Upcasters = Mapping[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]]
UPCASTERS: Final[Upcasters] = {}


class Record(Frozen):
    """One line of a job's log. `data` is the event's stored text: what the hash covers."""

    job_id: str
    version: int  # 1, 2, … without gaps
    at: int  # never falls within a job
    who: Who
    actor: str
    event: AnyEvent
    data: str
    request_id: str | None = None
    request_hash: str | None = None
    format: int = FORMAT

    @property
    def id(self) -> str:
        """Give the record's own name."""
        return f"{self.job_id}:{self.version}"


#: What most jobs say, and what is left out for that: msgspec leaves a default out only where it is the very object.
_LEFT_OUT: Final[Mapping[type[AnyEvent], tuple[str, object]]] = {
    Enqueued: ("policy", DEFAULT_POLICY),
    Claimed: ("lease", DEFAULT_POLICY.lease),
    Succeeded: ("result", NULL),
}


def encode(event: AnyEvent) -> str:
    """Give the text that is stored for the event."""
    name, default = _LEFT_OUT.get(type(event), ("wire", None))
    value = getattr(event, name)
    if value is not default and value == default:
        event = replace(event, **{name: default})
    return msgspec.json.encode(event).decode()


def decode(wire: str, data: str, stored: int = FORMAT, current: int = FORMAT, by: Upcasters = UPCASTERS) -> AnyEvent:
    """Read an event back that was `stored` in that format, and bring it to the `current` one."""
    event_type = BY_WIRE.get(wire)
    if event_type is None or not 1 <= stored <= current:
        raise CorruptLogError(f"there is no event {wire!r} of format {stored}: was it written by a newer version?")
    try:
        for older in range(stored, current):
            if (wire, older) in by:
                data = msgspec.json.encode(by[wire, older](msgspec.json.decode(data))).decode()
        return msgspec.json.decode(data, type=event_type)
    except (msgspec.DecodeError, UnicodeEncodeError, LookupError, TypeError, ValueError, AttributeError) as problem:
        raise CorruptLogError(f"the stored {wire!r} event cannot be read: {problem}") from problem


def canonical(record: Record, *then: Record) -> bytes:
    """Give the bytes that the hash covers: job id, version, time, what was `said`, and the stored text.

    Records that were written at once are one entry, and have one hash: it covers the words of each, under the version
    of the last. Those behind the first have nothing else to say.
    """
    words = "".join(map(_said, (record, *then)))
    return covered(record.job_id, record.version + len(then), record.at, words, record.data)


_UNBEGUN: Final = sha256()


def hashed(content: bytes) -> bytes:
    """Give the hash of bytes: to copy one that has not begun costs a good deal less than to ask OpenSSL for another."""
    begun = _UNBEGUN.copy()
    begun.update(content)
    return begun.digest()


def link(previous: bytes, *records: Record) -> bytes:
    """Give the hash of a record, or of some that were written at once, behind the one with the hash `previous`."""
    return hashed(previous + canonical(*records))


def _said(record: Record) -> str:
    request = record.request_id, record.request_hash
    return said(record.event.wire, record.who.value, record.actor, *request, stored=record.format)


@lru_cache(maxsize=256)
def said(event: str, who: str, actor: str, *request: str | None, stored: int = FORMAT) -> str:
    """Give the middle of the bytes that the hash covers, who said what: a batch has it in common.

    Each field is `length:text`, an absent one `-`. `request` is the id of the request and the hash of what it asked, or
    nothing.
    """
    return "".join(map(_field, (event, str(stored), who, actor, *(request or (None, None)))))


def covered(job_id: str, version: int, at: int, words: str, data: str) -> bytes:
    """Give the bytes that the hash covers, of the fields as a database has them and of what was `said`."""
    return f"{job_id} {version} {at} {words}{data}".encode("utf-8", "surrogateescape")


def seal(hash_: bytes) -> bytes:
    """Give what a record carries of its hash: enough to say which one of a log was changed."""
    return hash_[:SEAL_BYTES]


def check_chain(entries: Iterable[tuple[Sequence[Record], bytes]], previous: bytes = GENESIS) -> bytes:
    """Follow the chain from `previous` and give its head; the first entry that does not carry its seal raises."""
    for records, stored in entries:
        previous = link(previous, *records)
        if seal(previous) != stored:
            first = records[0]
            raise BrokenChainError(
                f"record {first.version} of job {first.job_id} does not carry the hash of its content"
            )
    return previous


def _field(text: str | None) -> str:
    if text is None:
        return "-"
    return f"{len(text) if text.isascii() else len(text.encode('utf-8', 'surrogateescape'))}:{text}"
