"""The feed: every committed event, at least once, in order per job, to any number of consumers.

Events become visible in the order of commits, which is not the order of any number that they carry. So a consumer's
place is a snapshot: the set of transactions that it has seen. What is new is what a later snapshot, the target, shows
and the first one did not; it is given in the order of (at, job, version), and `at` never falls within a job. A job's
next event is committed behind the one before it, so no snapshot shows the second without the first.

A file has one writer at a time: there the snapshot is a row number.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from leftfold.core.errors import CorruptLogError, FeedConflictError, StoreError
from leftfold.core.frozen import Frozen
from leftfold.core.record import FORMAT, Record
from leftfold.store.audit import Finding, What
from leftfold.store.query import Arguments, Query, Steps, ids
from leftfold.store.rows import FROZEN_AT, record_of, spread

#: How many events are looked at in one go by a consumer that is far behind.
WINDOW: Final = 20_000
#: Past it, what is behind is no longer counted.
BEHIND_MAX: Final = 100_000
#: Nothing was seen.
NOTHING: Final = "1:1:"
_LOWEST_ID: Final = "00000000-0000-0000-0000-000000000000"


class Snapshot(NamedTuple):
    """Which transactions are seen: all below `low`, and those below `high` that are not in `open`."""

    low: int
    high: int
    open: tuple[str, ...]  # numbers as text, as arrays go

    @classmethod
    def of(cls, text: str) -> "Snapshot":
        """Read it as PostgreSQL writes it."""
        try:
            low, high, still_open = text.split(":")
            return cls(int(low), int(high), tuple(each for each in still_open.split(",") if each))
        except ValueError as problem:
            raise StoreError(
                f"{text!r} is no place in the feed: somebody changed it; forget the consumer, and let it start again"
            ) from problem


class FeedPage(Frozen):
    """Some events that a consumer has not acknowledged, oldest first; none if there are none.

    `caught_up` is true if there was nothing behind them when they were read. `unreadable` names events that somebody
    damaged: `verify` says more of them, and the feed goes on. The rest says where the consumer stands.
    """

    consumer: str
    records: tuple[Record, ...]
    unreadable: tuple[Finding, ...] = ()
    caught_up: bool
    rev: int
    seen: str
    target: str
    last: tuple[int, str, int] | None  # of a page behind which there are more: at, job, version

    @property
    def stands_still(self) -> bool:
        """Tell whether there is nothing to acknowledge; a stretch without events is to be passed, too."""
        return not self.records and not self.unreadable and bool(self.rev) and self.caught_up


class Consumer(Frozen):
    """A consumer of the feed, and how far behind it is: `behind` counts to 100,000, `oldest_at` is the next event's."""

    name: str
    started_at: int
    moved_at: int
    behind: int
    oldest_at: int | None


def read(consumer: str, limit: int) -> Steps[FeedPage]:
    """Give the next events. Nothing is written: the same come again until they are acknowledged."""
    cursor: Arguments = {"consumer": consumer, "limit": limit}
    ((rev, seen, target, current, at, job_id, version, is_all, recovers),) = yield Query("feed_cursor", cursor)
    if recovers:  # it does not know which transactions are open, and would take them for seen
        raise StoreError("a standby cannot feed anybody: connect to the primary")
    newest, target = target is None and is_all, target or current
    if Snapshot.of(seen).high > Snapshot.of(current).high:
        raise StoreError(
            f"{consumer!r} has seen what this database has not done yet: it was restored from elsewhere, and numbers "
            "its transactions anew; forget the consumer, and let it start again"
        )
    found: list[Sequence[Any]] = []
    after = (0, _LOWEST_ID, 0) if at is None else (at, job_id, version)
    while True:
        # One more than asked for: it tells whether the page is the last one.
        rows, until = yield from _slice(Snapshot.of(seen), Snapshot.of(target), after, limit + 1 - len(found))
        found += _events_of(rows, after)
        if until is None or len(found) > limit:
            break
        # Behind the whole moment: a look that began with it again would find the same, if it has many events.
        after = (until + 1, _LOWEST_ID, 0)
    given = _readable(found[:limit], (yield from _frozen(found)))
    complete = len(given) == len(found)
    return FeedPage(
        consumer=consumer,
        records=tuple(each for each in given if isinstance(each, Record)),
        unreadable=tuple(each for each in given if isinstance(each, Finding)),
        caught_up=complete and newest,
        rev=rev,
        seen=seen,
        target=target,
        last=None if complete else _place_of(found[len(given) - 1]),
    )


def _events_of(rows: Iterable[Sequence[Any]], after: tuple[int, str, int]) -> Iterator[Sequence[Any]]:
    """Give the events of entries; of one that a page ended in, those behind that."""
    for job_id, *columns in rows:
        for each in spread(columns):
            if _place_of((job_id, *each)) > after:
                yield job_id, *each


def _place_of(row: Sequence[Any]) -> tuple[int, str, int]:
    job_id, version, at = row[:3]
    return at, job_id, version


def _frozen(rows: Sequence[Sequence[Any]]) -> Steps[set[str]]:
    """Give the jobs with events of a later version that are frozen: then it only looks as if there was one."""
    newer = sorted({row[0] for row in rows if row[3] > FORMAT})
    return {row[0] for row in (yield ids("load", newer)) if row[FROZEN_AT] is not None} if newer else set()


def _readable(rows: Sequence[Sequence[Any]], frozen: set[str]) -> list[Record | Finding]:
    """Give records, and for events that somebody damaged a word about them: up to one that a later version wrote.

    That one may well be read by somebody else: whoever passed it over would miss it.
    """
    given: list[Record | Finding] = []
    for row in rows:
        job_id, version, _, stored = row[:4]
        try:
            given.append(record_of(job_id, row[1:]))
        except CorruptLogError as problem:
            if stored <= FORMAT or job_id in frozen:
                given.append(Finding(what=What.UNREADABLE, detail=f"event {version}: {problem}", job_id=job_id))
            elif given:
                break
            else:
                raise CorruptLogError(f"event {version} of job {job_id}: {problem}") from problem
    return given


def _slice(
    seen: Snapshot, target: Snapshot, after: tuple[int, str, int], limit: int
) -> Steps[tuple[Sequence[Sequence[Any]], int | None]]:
    """Give the next events of a stretch of time that is short enough to be sorted, and where it ends, if it does."""
    at, job_id, version = after
    window: Arguments = {"from": seen.high, "missed": seen.open, "to": target.high, "at": at}
    ((found, until),) = yield Query("feed_stretch", {**window, "rows": WINDOW})
    until = until if found >= WINDOW else None
    shown: Arguments = {"low": target.low, "open": target.open}
    keyset: Arguments = {"job_id": job_id, "version": version, "until": until, "limit": limit}
    return (yield Query("feed_page", {**window, **shown, **keyset})), until


def begin_now(consumer: str) -> Steps[None]:
    """Make a consumer known, if it is not: it will get what comes from now on."""
    ((rev, _, _, current, *_),) = yield Query("feed_cursor", {"consumer": consumer, "limit": 2**62})
    if rev == 0:
        yield Query("feed_begin", {"consumer": consumer, "seen": current})


def acknowledge(page: FeedPage) -> Steps[None]:
    """Let the consumer go on behind a page."""
    rev = page.rev
    if rev == 0:
        begun = yield Query("feed_begin", {"consumer": page.consumer, "seen": NOTHING})
        rev = begun[0][0] if begun else 0
    at, job_id, version = page.last or (None, None, None)
    place: Arguments = {
        "seen": page.seen if page.last else page.target,
        "target": page.target if page.last else None,
        "at": at,
        "job_id": job_id,
        "version": version,
    }
    moved = yield Query("feed_move", {"consumer": page.consumer, "rev": rev, **place})
    if not moved:
        raise FeedConflictError(f"{page.consumer!r} has gone on since this page was read: somebody else reads for it")


def forget(consumer: str) -> Steps[bool]:
    """Forget a consumer, and tell whether there was one."""
    return bool((yield Query("feed_forget", {"consumer": consumer})))


def consumers() -> Steps[list[Consumer]]:
    """Give every consumer, and how far behind it is."""
    rows = yield Query("feeds", {"most": BEHIND_MAX})
    return [
        Consumer(name=name, started_at=started_at, moved_at=moved_at, behind=behind, oldest_at=oldest_at)
        for name, started_at, moved_at, behind, oldest_at in sorted(rows)
    ]
