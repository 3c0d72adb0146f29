"""Operations that give jobs away: by the next that are due, or by id."""

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

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
    command: c.Claim,
    wanted: Wanted,
    trail: Trail,
    *,
    start: bool,
    unread: list[str],
    request: Request | None,
    forbidden: Forbidden,
) -> Steps[list[Claim]]:
    """Take the jobs that are due, the highest priority first, then the longest due; `start` them in the same breath.

    Jobs that nobody could read the order of are put into `unread`: they are not given, and stop no others.
    """
    owner = command.by.name
    return (
        yield from once(
            request,
            lambda: _claim(command, wanted, trail, unread, forbidden, start=start),
            lambda claims: claims and _given(claims),
            lambda response: _same_claims(msgspec.json.decode(response, type=_Given), owner),
        )
    )


def _claim(
    command: c.Claim, wanted: Wanted, trail: Trail, unread: list[str], forbidden: Forbidden, *, start: bool
) -> Steps[list[Claim]]:
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
    claims = []
    unread.clear()
    for row in rows:
        try:
            claims.append(_claim_of(row[:_CLAIM], command.token, command.by.name))
        except CorruptLogError:
            unread.append(row[0])
    return claims


def _order(row: Columns) -> tuple[int, int, str]:
    _, priority, due = row[_LANE]
    return -priority, due, row[0]


def _given(claims: Sequence[Claim]) -> _Given:
    return _Given(claims[0].token, {claim.job_id: claim.attempt for claim in claims})


def _same_claims(given: _Given, owner: str) -> Steps[list[Claim]]:
    rows = yield ids("claims", list(given.attempts))
    claims = [_claim_of(row, given.token, owner) for row in rows]
    # The job may be another's by now; the claim that was given says so by its attempt.
    return [replace(claim, attempt=given.attempts[claim.job_id]) for claim in claims]


def claim_job(job_id: str, command: c.Claim, request: Request | None, forbidden: Forbidden) -> Steps[Claim]:
    """Take this very job, a stalled one too."""
    (given,) = yield from once(
        request,
        lambda: _claim_job(job_id, command, forbidden),
        _given,
        lambda response: _same_claims(msgspec.json.decode(response, type=_Given), command.by.name),
    )
    return given


def _claim_job(job_id: str, command: c.Claim, forbidden: Forbidden) -> Steps[list[Claim]]:
    yield ids("lock", [job_id])  # who admits a job may put it into another queue
    for (queue,) in (yield ids("paused", [job_id])):
        raise QueuePausedError(f"job {job_id} is in queue {queue!r}, which is paused: resume it first")
    (outcome,) = yield from carry_out([Ask(job_id, command)], forbidden)
    if isinstance(outcome, LeftfoldError):
        raise outcome
    (row,) = yield ids("claims", [job_id])
    return [_claim_of(row, command.token, command.by.name)]


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
