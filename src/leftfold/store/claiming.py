"""Operations that give jobs away: by the next that are due, or by id."""

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import Forbidden
from leftfold.core.errors import CorruptLogError, DialectRefusedError, LeftfoldError, QueuePausedError
from leftfold.core.lifecycle import CLAIMABLE, TARGETS, Edge, Who
from leftfold.core.record import decode, said
from leftfold.core.retry import DEFAULT_POLICY
from leftfold.store.ops import Ask, carry_out
from leftfold.store.query import Arguments, Columns, Query, Steps, ids
from leftfold.store.replies import Claim
from leftfold.store.requests import Request, once
from leftfold.store.rows import TOGETHER

_TOKEN_BYTES: Final = 16
_TRAIL_SECONDS: Final = 0.2
#: Where the rows of a claim say from which lane they come, and how many there were.
_CLAIM: Final = 10  # columns of a claim; behind them stands where it was found
_LANE: Final = slice(10, 13)
_LANES: Final = 13
_STARTED: Final = Edge(TARGETS[e.Claimed], e.Started, TARGETS[e.Started])


class Wanted(NamedTuple):
    """Which jobs a worker can run, and how many it takes. None means any."""

    queues: list[str] | None
    kinds: list[str] | None
    limit: int


class Taken(NamedTuple):
    """What a claim took. To read it takes a while, for which no transaction has to stay open."""

    token: str
    rows: Sequence[Columns]


class _Given(NamedTuple):
    """What is remembered of a claim: enough to give the same claims again."""

    token: str
    attempts: dict[str, int]  # job id → attempt


class Place(NamedTuple):
    """Somewhere in a lane: how the lane is called, from which due time on, and how long that is worth knowing."""

    queue: str
    priority: int
    due: int
    until: float


class Trail:
    """Where the claims of a worker left off, while everything that it can have stands in one lane.

    What was claimed leaves dead entries in PostgreSQL's index, which stay as long as anybody holds an older snapshot.
    To begin behind them keeps the cost of a claim flat. A job that was committed late, and is due before that place, is
    found when the trail is dropped: a moment later, or when it leads to nothing.
    """

    def __init__(self) -> None:
        self._found: tuple[Wanted, Place] | None = None

    def place(self, wanted: Wanted) -> Place | None:
        """Give where to begin, if that is known and not too old."""
        found = self._found  # once: other threads claim as well
        if found is None or found[0] != wanted._replace(limit=0) or found[1].until < time.monotonic():
            return None
        return found[1]

    def follow(self, wanted: Wanted, rows: Sequence[Any], begun: Place | None) -> None:
        """Learn from what a claim gave. A place is as old as the last look at all lanes."""
        if len(rows) < wanted.limit or rows[-1][_LANES] != 1:
            self._found = None
        else:
            until = begun.until if begun else time.monotonic() + _TRAIL_SECONDS
            queue, priority, due = rows[-1][_LANE]
            self._found = (wanted._replace(limit=0), Place(queue, priority, due, until))


def new_token() -> str:
    """Give a secret that nobody guesses."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def claim(
    command: c.Claim, wanted: Wanted, trail: Trail, *, start: bool, request: Request | None, forbidden: Forbidden
) -> Steps[Taken]:
    """Take the jobs that are due, the highest priority first, then the longest due; `start` them in the same breath."""
    return (
        yield from once(
            request,
            lambda: _claim(command, wanted, trail, forbidden, start=start),
            lambda taken: taken.rows and _Given(taken.token, {row[0]: row[1] for row in taken.rows}),
            lambda response: _same(msgspec.json.decode(response, type=_Given)),
        )
    )


def claims_of(taken: Taken, owner: str) -> tuple[list[Claim], list[str]]:
    """Read what was taken. Jobs of which nobody could read the order are told apart: they stop no others."""
    claims, unread = [], []
    for row in taken.rows:
        try:
            claims.append(_claim_of(row[:_CLAIM], taken.token, owner))
        except CorruptLogError:
            unread.append(row[0])
    return claims, unread


def _claim(command: c.Claim, wanted: Wanted, trail: Trail, forbidden: Forbidden, *, start: bool) -> Steps[Taken]:
    if start and _STARTED in forbidden:
        raise DialectRefusedError("the enforced dialect does not let a claim be started: claim, and leave it at that")
    sources = [state for state in CLAIMABLE if Edge(state, e.Claimed, TARGETS[e.Claimed]) not in forbidden]
    request_hash = None if command.request_id is None else c.fingerprint(command)
    words = said(e.Claimed.wire, command.by.who.value, command.by.name, command.request_id, request_hash)
    if start:
        words += said(e.Started.wire, Who.OWNER.value, command.by.name)
    arguments: Arguments = {
        "kinds": wanted.kinds,
        "sources": sorted(sources),
        "limit": wanted.limit,
        "owner": command.by.name,
        "token": c.digest(command.token),
        "lease": command.lease,
        "request_id": command.request_id,
        "request_hash": request_hash,
        "said": words,
        "event": TOGETHER if start else e.Claimed.wire,
        "steps": 2 if start else 1,
        "target": TARGETS[e.Started if start else e.Claimed].value,
    }
    place = trail.place(wanted) if command.request_id is None else None
    rows: list[Columns] = []
    if place:
        lane: Arguments = {"queue": place.queue, "priority": place.priority, "due": place.due}
        rows = yield Query("claim_on", {**arguments, **lane, "alone": len(wanted.queues or ()) == 1})
    if not rows:
        place = None
        rows = yield Query("claim", {**arguments, "queues": wanted.queues})
    rows = sorted(rows, key=_order)  # they are, nearly always; a database would copy all of them to make sure
    trail.follow(wanted, rows, place)
    return Taken(command.token, rows)


def _order(row: Columns) -> tuple[int, int, str]:
    _, priority, due = row[_LANE]
    return -priority, due, row[0]


def _same(given: _Given) -> Steps[Taken]:
    rows = yield ids("claims", list(given.attempts))
    # The job may be another's by now; the claim that was given says so by its attempt.
    return Taken(given.token, [(row[0], given.attempts[row[0]], *row[2:]) for row in rows])


def claim_job(job_id: str, command: c.Claim, request: Request | None, forbidden: Forbidden) -> Steps[Claim]:
    """Take this very job, a stalled one too."""
    taken = yield from once(
        request,
        lambda: _claim_job(job_id, command, forbidden),
        lambda taken: _Given(taken.token, {job_id: taken.rows[0][1]}),
        lambda response: _same(msgspec.json.decode(response, type=_Given)),
    )
    return _claim_of(taken.rows[0], taken.token, command.by.name)


def _claim_job(job_id: str, command: c.Claim, forbidden: Forbidden) -> Steps[Taken]:
    yield ids("lock", [job_id])  # who admits a job may put it into another queue
    for (queue,) in (yield ids("paused", [job_id])):
        raise QueuePausedError(f"job {job_id} is in queue {queue!r}, which is paused: resume it first")
    (outcome,) = yield from carry_out([Ask(job_id, command)], forbidden)
    if isinstance(outcome, LeftfoldError):
        raise outcome
    return Taken(command.token, (yield ids("claims", [job_id])))


def _claim_of(row: Sequence[Any], token: str, owner: str) -> Claim:
    job_id, attempt, failures, until, first_event, first_format, first_data, later_format, later_data, lost = row
    first = decode(first_event, first_data, first_format)
    later = None if later_data is None else decode(e.Enqueued.wire, later_data, later_format)
    spec = (later.spec if isinstance(later, e.Enqueued) else None) or getattr(first, "spec", None)
    if spec is None:
        raise CorruptLogError(f"nothing says what job {job_id} is to do")
    enqueued = later or first
    policy = enqueued.policy if isinstance(enqueued, e.Enqueued) else DEFAULT_POLICY
    return Claim(
        job_id=job_id,
        attempt=attempt,
        token=token,
        owner=owner,
        until=until,
        failures=failures,
        spec=spec,
        policy=policy,
        lost=bool(lost),
    )
