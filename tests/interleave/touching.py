"""What each statement touches: by this, two statements of two sides commute, and need not be tried in both orders.

Nobody sees what a transaction wrote before it commits; so statements meet where they lock the same, and where the end
of a transaction shows (or lets go of) what another statement reads or locks. Who changes a row locks the key that it
may have, too: who wants that key waits for the end of the change. A statement that is not known here meets everything.
That nothing is missed by this is tried with some pairs, all orders of which are played.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

ENDS: Final = frozenset({"COMMIT", "ROLLBACK"})
EVERYTHING: Final = frozenset({"job", "new job", "event", "key", "request", "queue", "feed", "counts", "worker"})


class Touch(NamedTuple):
    """What a statement reads, what it locks, and what its end of the transaction shows to others."""

    reads: frozenset[str] = frozenset()
    locks: frozenset[str] = frozenset()
    shows: frozenset[str] = frozenset()

    def meets(self, other: "Touch") -> bool:
        """Tell whether the order of the two may matter."""
        met = self.locks & other.locks
        return bool(met or self.shows & (other.reads | other.locks) or other.shows & (self.reads | self.locks))


def _touch(reads: str = "", locks: str = "") -> Touch:
    return Touch(frozenset(filter(None, reads.split(", "))), frozenset(filter(None, locks.split(", "))))


_UNKNOWN: Final = Touch(EVERYTHING, EVERYTHING)
TOUCHES: Final[Mapping[str, Touch]] = {
    "BEGIN":         _touch(),
    "clock":         _touch(),
    "enqueue":       _touch(locks="new job"),
    "enqueue_keyed": _touch(locks="new job, key"),
    "insert":        _touch(locks="new job, key"),
    "holders":       _touch(reads="job, new job, key"),
    "lock":          _touch(locks="job"),
    "load":          _touch(reads="job, event"),
    "append":        _touch(locks="event"),
    "project":       _touch(locks="job, key"),
    "own":           _touch(locks="job, event, key"),
    "renew":         _touch(locks="job, key"),
    "look":          _touch(reads="job"),
    "claim":         _touch(reads="queue, new job", locks="job, event, key"),
    "claim_on":      _touch(reads="queue, new job", locks="job, event, key"),
    "claims":        _touch(reads="job, event"),
    "states":        _touch(reads="job, new job"),
    "paused":        _touch(reads="queue, job"),
    "pause":         _touch(locks="queue"),
    "unpause":       _touch(locks="queue"),
    "await_request": _touch(locks="request"),
    "recall":        _touch(reads="request"),
    "remember":      _touch(locks="request"),
    "overdue":       _touch(locks="job"),
    "feed_cursor":   Touch(reads=EVERYTHING),  # who is at work meanwhile
    "feed_stretch":  _touch(reads="event, new job"),
    "feed_page":     _touch(reads="event, new job"),
    "feed_begin":    _touch(locks="feed"),
    "feed_move":     _touch(locks="feed"),
    "feed_forget":   _touch(locks="feed"),
    "beat":          _touch(locks="worker"),
    "forget_workers": _touch(locks="worker"),
}  # fmt: skip


def touch_of(statement: str, held: frozenset[str], *, in_transaction: bool) -> Touch:
    """Give what a statement touches, in or outside of a transaction that holds locks on `held`."""
    if statement in ENDS:
        return Touch(shows=held)
    touch = TOUCHES.get(statement, _UNKNOWN)
    return touch if in_transaction else touch._replace(shows=touch.locks)
