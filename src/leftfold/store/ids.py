"""Job ids: UUIDs of version 7, so that they sort by the time of their making and a store's index grows at its end.

48 bits of milliseconds, 12 bits of a counter, 10 bits for a shard, 52 random bits. Clock and randomness are given.
"""

import os
import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from leftfold.core import limits

_COUNTER_BITS: Final = 12
_COUNTER_MAX: Final = (1 << _COUNTER_BITS) - 1
SHARDS: Final = 1 << 10
_RANDOM_DIGITS: Final = 13
_RANDOM_BYTES: Final = (_RANDOM_DIGITS + 1) // 2

#: For ids that are made one by one, drawn ahead: to ask the system for each takes longer than all the rest. A child has
#: its own, also one that was forked behind Python's back, as by a server written in C: the parent goes on with these.
_DRAWN: Final[dict[int, list[bytes]]] = {}
_AHEAD: Final = 64


def _randomness(count: int) -> bytes:
    if count != _RANDOM_BYTES:
        return os.urandom(count)
    process = os.getpid()
    drawn = _DRAWN.get(process)
    if drawn is None:
        _DRAWN.clear()
        drawn = _DRAWN.setdefault(process, [])
    try:
        return drawn.pop()
    except IndexError:
        more = os.urandom(_RANDOM_BYTES * _AHEAD)
        drawn.extend(more[at : at + _RANDOM_BYTES] for at in range(_RANDOM_BYTES, len(more), _RANDOM_BYTES))
        return more[:_RANDOM_BYTES]


class Ids:
    """Makes ids that only grow, whatever the clock does, within one process."""

    def __init__(
        self, clock: Callable[[], int] | None = None, randomness: Callable[[int], bytes] = _randomness, shard: int = 0
    ) -> None:
        limits.between("shard", shard, 0, SHARDS - 1)
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._randomness = randomness
        self._mark = f"{0b10 << 10 | shard:03x}"
        self._last = 0  # milliseconds and counter, as one number
        self._lock = Lock()

    def make_one(self) -> str:
        """Give a new id, later than all before it."""
        noise = self._randomness(_RANDOM_BYTES).hex()
        with self._lock:
            self._last = made = max(self._clock() // 1000 << _COUNTER_BITS, self._last + 1)
        digits = f"{made:015x}"
        return f"{digits[:8]}-{digits[8:12]}-7{digits[12:]}-{self._mark}{noise[0]}-{noise[1:_RANDOM_DIGITS]}"

    def make(self, count: int) -> list[str]:
        """Give this many new ids, in rising order."""
        noise = self._randomness((count * _RANDOM_DIGITS + 1) // 2).hex()
        with self._lock:
            first = max(self._clock() // 1000 << _COUNTER_BITS, self._last + 1)
            self._last = first + count - 1
        made, time_ = [], ""
        for place in range(count):
            counter = first + place & _COUNTER_MAX
            if not time_ or not counter:  # what most of a batch have in common
                milliseconds = f"{first + place >> _COUNTER_BITS:012x}"
                time_ = f"{milliseconds[:8]}-{milliseconds[8:]}-7"
            at = place * _RANDOM_DIGITS
            made.append(f"{time_}{counter:03x}-{self._mark}{noise[at]}-{noise[at + 1 : at + _RANDOM_DIGITS]}")
        return made
