"""Arrays as PostgreSQL keeps them, for what goes in large batches: nobody has to spell them out, nor to read them.

Each is a number of items, and then for each its length and its bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper

#: Dimensions, whether there are nulls, the type of an item, how many there are, and the number of the first one.
_HEAD: Final = Struct("!iiIii").pack
_LENGTH: Final = Struct("!i").pack
_UUID, _BYTEA, _TEXT = 2950, 17, 25
_ID_BYTES: Final = 16
_ID_CHARS: Final = 36
_DASHES: Final = (8, 13, 18, 23)


class Ids(bytes):
    """An array of UUIDs, ready to be sent."""

    __slots__ = ()


class Blobs(bytes):
    """An array of bytes, ready to be sent."""

    __slots__ = ()


class Texts(tuple[str, ...]):
    """An array of texts. Only a connection knows how it spells them."""

    __slots__ = ()


class _Dumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        return bytes(obj)


class _IdsDumper(_Dumper):
    oid = 2951


class _BlobsDumper(_Dumper):
    oid = 1001


class _TextsDumper(_Dumper):
    oid = 1009

    def dump(self, obj: Any) -> Buffer:
        encoding = "ascii" if self.connection is None else self.connection.info.encoding
        # To a server, SQL_ASCII means that it takes what comes.
        return _joined(_TEXT, [text.encode("utf-8" if encoding == "ascii" else encoding) for text in obj])


def teach(adapters: AdaptersMap) -> None:
    """Let a connection or a cursor know how they are sent."""
    for kind, dumper in ((Ids, _IdsDumper), (Blobs, _BlobsDumper), (Texts, _TextsDumper)):
        adapters.register_dumper(kind, dumper)


teach(psycopg.adapters)  # and so every connection that is made from now on


def packed_ids(texts: Sequence[str]) -> Ids | None:
    """Give ids, or None if there is one among them that is not spelled as everybody spells them."""
    count, together = len(texts), "".join(texts)
    if len(together) != _ID_CHARS * count or any(together[dash::_ID_CHARS] != "-" * count for dash in _DASHES):
        return None
    try:
        ids = bytes.fromhex(together.replace("-", ""))
    except ValueError:
        return None
    if len(ids) != _ID_BYTES * count:
        return None
    between = _LENGTH(_ID_BYTES)
    items = between.join([ids[begin : begin + _ID_BYTES] for begin in range(0, len(ids), _ID_BYTES)])
    return Ids(_HEAD(1, 0, _UUID, count, 1) + between + items)


def packed_blobs(blobs: Sequence[bytes]) -> Blobs:
    """Give bytes."""
    return Blobs(_joined(_BYTEA, blobs))


def _joined(item: int, values: Sequence[bytes]) -> bytes:
    parts = [_HEAD(1, 0, item, len(values), 1)]
    for value in values:
        parts += (_LENGTH(len(value)), value)
    return b"".join(parts)


Packed = Ids | Blobs | Texts
#: How the columns of large batches go, by their names.
PACKED: Final[Mapping[str, Callable[[Sequence[Any]], Packed | None]]] = {
    "id": packed_ids,
    "hash": packed_blobs,
    "data": Texts,
    "rest": Texts,
}
