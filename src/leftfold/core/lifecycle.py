"""The lifecycle of a job, as data.

Rule 1: everything that decides which state follows which stands in this file.
Rule 2: no clock, no I/O; a state never changes because time passed, only because an event says so.

Diagram, matrix, SQL and docs are rendered from these two tables, the five dialects are views on them, and
`check_design` refuses tables that contradict themselves before any job exists.
"""

from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from typing import Final, NamedTuple

from leftfold.core import events as e
from leftfold.core.errors import DesignError


class State(StrEnum):
    """Where a job is."""

    INBOX = "inbox"
    QUEUED = "queued"
    RETRYING = "retrying"
    CLAIMED = "claimed"
    RUNNING = "running"
    WAITING = "waiting"
    PARKED = "parked"
    STALLED = "stalled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"


class Who(StrEnum):
    """Who may say that something happened."""

    CLIENT = "client"
    WORKER = "worker"  # claims
    OWNER = "owner"  # holds the lease; every write is fenced by (attempt, token)
    KEEPER = "keeper"
    OPERATOR = "operator"


# fmt: off
_NEW          = None
INBOX         = State.INBOX
QUEUED        = State.QUEUED
RETRYING      = State.RETRYING
CLAIMED       = State.CLAIMED
RUNNING       = State.RUNNING
WAITING       = State.WAITING
PARKED        = State.PARKED
STALLED       = State.STALLED
SUCCEEDED     = State.SUCCEEDED
FAILED        = State.FAILED
CANCELLED     = State.CANCELLED
DEAD_LETTERED = State.DEAD_LETTERED

CLIENT, WORKER, OWNER, KEEPER, OPERATOR = Who

#: Final states accept nothing, ever. Closed ones can be reopened by an operator, with a reason.
FINAL:  Final = frozenset({SUCCEEDED, CANCELLED})
CLOSED: Final = frozenset({FAILED, DEAD_LETTERED})
ENDED:  Final = FINAL | CLOSED


class Shape(NamedTuple):
    """Which fields a job in one state must carry (True) or must not (False)."""

    due: bool
    lease: bool
    wait: bool
    result: bool
    error: bool


MUST, NOT = True, False

#: Entering a state drops every field that its row forbids. A JSON null is a result like any other.
SHAPE: Final[Mapping[State, Shape]] = {
    #                    due   lease wait  result error
    INBOX:         Shape(NOT,  NOT,  NOT,  NOT,   NOT),
    QUEUED:        Shape(MUST, NOT,  NOT,  NOT,   NOT),
    RETRYING:      Shape(MUST, NOT,  NOT,  NOT,   MUST),
    CLAIMED:       Shape(NOT,  MUST, NOT,  NOT,   NOT),
    RUNNING:       Shape(NOT,  MUST, NOT,  NOT,   NOT),
    WAITING:       Shape(NOT,  NOT,  MUST, NOT,   NOT),
    PARKED:        Shape(NOT,  NOT,  MUST, NOT,   NOT),
    STALLED:       Shape(NOT,  NOT,  NOT,  NOT,   NOT),
    SUCCEEDED:     Shape(NOT,  NOT,  NOT,  MUST,  NOT),
    FAILED:        Shape(NOT,  NOT,  NOT,  NOT,   MUST),
    CANCELLED:     Shape(NOT,  NOT,  NOT,  NOT,   NOT),
    DEAD_LETTERED: Shape(NOT,  NOT,  NOT,  NOT,   MUST),
}

MEANING: Final[Mapping[State, str]] = {
    INBOX:         "received, not yet admitted",
    QUEUED:        "claimable once due",
    RETRYING:      "an attempt failed; claimable again once due",
    CLAIMED:       "one owner, handler not entered",
    RUNNING:       "handler entered",
    WAITING:       "suspended until a signal, a timer or another job",
    PARKED:        "suspended with nothing to poll: only a signal wakes it",
    STALLED:       "the owner is no longer trusted",
    SUCCEEDED:     "final",
    FAILED:        "closed",
    CANCELLED:     "final",
    DEAD_LETTERED: "closed, set aside with reason and stage",
}


class Rule(NamedTuple):
    """One row of the table: this event leads from each of these states to that one, if one of these says so."""

    label: str
    event: type[e.AnyTransition]
    sources: tuple[State | None, ...]  # None: the job does not exist yet
    target: State
    who: tuple[Who, ...]
    effect: str = ""


TABLE: Final[tuple[Rule, ...]] = (
    #         event           from                        to             who                         effect
    Rule("A", e.Received,     (_NEW,),                    INBOX,         (CLIENT,)),
    Rule("B", e.Enqueued,     (_NEW, INBOX),              QUEUED,        (CLIENT,),                  "sets due"),
    Rule("C", e.Claimed,      (QUEUED, RETRYING, STALLED), CLAIMED,      (WORKER,),                  "attempt+1, lease"),
    Rule("D", e.Started,      (CLAIMED,),                 RUNNING,       (OWNER,)),
    Rule("E", e.Suspended,    (QUEUED,),                  WAITING,       (CLIENT,),                  "waits for other jobs"),
    Rule("E", e.Suspended,    (RUNNING,),                 WAITING,       (OWNER,),                   "releases the lease; stores the wait"),
    Rule("F", e.Parked,       (RUNNING,),                 PARKED,        (OWNER,),                   "releases the lease; stores the wait"),
    Rule("G", e.Resumed,      (WAITING,),                 QUEUED,        (CLIENT, KEEPER),           "due now, or as enqueued; carries the signal, or expired"),
    Rule("G", e.Resumed,      (PARKED,),                  QUEUED,        (CLIENT,),                  "due now; carries the signal"),
    Rule("H", e.Succeeded,    (RUNNING,),                 SUCCEEDED,     (OWNER,),                   "result"),
    Rule("I", e.Retried,      (CLAIMED, RUNNING),         RETRYING,      (OWNER,),                   "failures+1, error, due"),
    Rule("J", e.Released,     (CLAIMED, RUNNING),         QUEUED,        (OWNER,),                   "charges nothing; due now or given"),
    Rule("K", e.Stalled,      (CLAIMED, RUNNING),         STALLED,       (KEEPER, OPERATOR),         "failures+1 from running only; the lease is gone"),
    Rule("L", e.Requeued,     (QUEUED, RETRYING, STALLED), QUEUED,       (KEEPER, OPERATOR),         "due now or given"),
    Rule("L", e.Requeued,     (FAILED, DEAD_LETTERED),    QUEUED,        (OPERATOR,),                "reason required; due now or given; failures back to 0; clears a cancel request"),
    Rule("M", e.Failed,       (CLAIMED, RUNNING),         FAILED,        (OWNER,),                   "error; failures+1"),
    Rule("M", e.Failed,       (STALLED,),                 FAILED,        (KEEPER,),                  "error"),
    Rule("N", e.DeadLettered, (INBOX,),                   DEAD_LETTERED, (CLIENT, KEEPER, OPERATOR), "error, reason, stage: failed admission"),
    Rule("N", e.DeadLettered, (QUEUED, RETRYING, WAITING, PARKED, STALLED),
                                                          DEAD_LETTERED, (KEEPER, OPERATOR),         "error, reason, stage"),
    Rule("N", e.DeadLettered, (CLAIMED, RUNNING),         DEAD_LETTERED, (OWNER, OPERATOR),          "error, reason, stage; failures+1 by the owner"),
    Rule("O", e.Cancelled,    (INBOX, QUEUED, RETRYING, WAITING, PARKED, STALLED),
                                                          CANCELLED,     (CLIENT, KEEPER, OPERATOR)),
    Rule("O", e.Cancelled,    (CLAIMED, RUNNING),         CANCELLED,     (CLIENT, OWNER, OPERATOR)),
)
# fmt: on

#: An attempt only moves forward: (attempt, phase) never falls. The job itself may be queued again.
PHASE: Final[Mapping[State, int]] = {state: {CLAIMED: 1, RUNNING: 2}.get(state, 3) for state in State}


class Edge(NamedTuple):
    """One move of the lifecycle."""

    source: State | None
    event: type[e.AnyTransition]
    target: State

    def __str__(self) -> str:
        return f"{self.source or '(new)'} -{self.event.wire}-> {self.target}"


_Index = Mapping[tuple[State | None, type[e.AnyTransition]], Rule]


def edges_of(table: Sequence[Rule]) -> _Index:
    """Index the rows by (state, event), refusing two rows for one edge."""
    index: dict[tuple[State | None, type[e.AnyTransition]], Rule] = {}
    for rule in table:
        for source in rule.sources:
            if (source, rule.event) in index:
                raise DesignError(f"two rules on one edge: {source} x {rule.event.wire}")
            index[source, rule.event] = rule
    return index


def check_design(table: Sequence[Rule], shape: Mapping[State, Shape]) -> None:
    """Refuse tables that contradict themselves. It raises rather than asserts, so `python -O` keeps it."""
    index = edges_of(table)
    for event in e.TRANSITIONS:
        if not any(rule.event is event for rule in table):
            raise DesignError(f"an event without a rule: {event.wire}")
    for label in {rule.label for rule in table}:
        if len({(rule.event, rule.target) for rule in table if rule.label == label}) != 1:
            raise DesignError(f"label {label} stands for more than one event")
    for state in State:
        if state not in shape:
            raise DesignError(f"a state without a shape: {state}")
        if state not in _reachable(index, None):
            raise DesignError(f"an unreachable state: {state}")
        if state not in ENDED and not _reachable(index, state) & FINAL:
            raise DesignError(f"a state without an end: {state}")
    for (source, _), rule in index.items():
        _check_exit(source, rule, shape)


def _check_exit(source: State | None, rule: Rule, shape: Mapping[State, Shape]) -> None:
    if source in FINAL:
        raise DesignError(f"an exit from a final state: {source} x {rule.event.wire}")
    if source in CLOSED and rule.who != (OPERATOR,):
        raise DesignError(f"somebody else than an operator reopens {source}")
    if OWNER in rule.who and (source is None or not shape[source].lease):
        raise DesignError(f"an owner without a lease: {source} x {rule.event.wire}")


def _reachable(index: _Index, start: State | None) -> set[State]:
    seen: set[State] = set()
    frontier: Set[State | None] = {start}
    while frontier:
        frontier = {rule.target for (source, _), rule in index.items() if source in frontier} - seen
        seen |= frontier - {None}
    return seen


check_design(TABLE, SHAPE)

_RULES: Final = edges_of(TABLE)
TARGETS: Final[Mapping[type[e.AnyTransition], State]] = {rule.event: rule.target for rule in TABLE}
EDGES: Final = tuple(Edge(source, event, rule.target) for (source, event), rule in _RULES.items())
LEASED: Final = frozenset(state for state in State if SHAPE[state].lease)
BLOCKED: Final = frozenset(state for state in State if SHAPE[state].wait)
#: What a claim may look for; a stalled job has no due and is claimed by its id alone.
CLAIMABLE: Final = frozenset(
    edge.source for edge in EDGES if edge.event is e.Claimed and edge.source and SHAPE[edge.source].due
)


def rule_for(state: State | None, event: type[e.AnyTransition]) -> Rule | None:
    """Give the row for this event in this state, or None where the event is illegal."""
    return _RULES.get((state, event))
