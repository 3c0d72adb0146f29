"""Seed 002: two specifications stacked in one file, both "v1". The table is their union, each edge with its origin.

"No backward transitions" and "an expired lease returns the job to queued" cannot both hold of a job. They hold
of an attempt: (attempt, phase) never falls (`first_step_back`), and only a recorded event opens the next one.
"""

from typing import Final, NamedTuple

from leftfold.core import events as e
from leftfold.core.lifecycle import (
    CANCELLED,
    CLAIMED,
    DEAD_LETTERED,
    FAILED,
    INBOX,
    PARKED,
    QUEUED,
    RETRYING,
    RUNNING,
    STALLED,
    SUCCEEDED,
    WAITING,
)
from leftfold.dialects.dialect import INITIAL, Basis, Dialect, Extension, Move, Said

FIRST: Final = "v1 (Distributed Reliability)"
SECOND: Final = "v1"


class VersionedEdge(NamedTuple):
    """An edge of the union, with the versions it stands in."""

    source: str
    target: str
    event: str
    versions: tuple[str, ...]


# fmt: off
STATES: Final = ("queued", "assigned", "running", "succeeded", "failed", "cancelled", "dead_lettered")

#: "Allowed Transitions" of the first version with its diagram, and "Valid Transitions" of the second.
EDGES: Final = (
    VersionedEdge(INITIAL,    "queued",        "job_enqueued",      (FIRST,)),  # the diagram's, which names no event
    VersionedEdge("queued",   "assigned",      "job_claimed",       (FIRST, SECOND)),
    VersionedEdge("assigned", "running",       "job_started",       (FIRST, SECOND)),
    VersionedEdge("running",  "succeeded",     "job_succeeded",     (FIRST, SECOND)),
    VersionedEdge("running",  "failed",        "job_failed",        (FIRST, SECOND)),
    VersionedEdge("running",  "cancelled",     "job_cancelled",     (FIRST, SECOND)),
    VersionedEdge("queued",   "cancelled",     "job_cancelled",     (SECOND,)),
    VersionedEdge("assigned", "cancelled",     "job_cancelled",     (SECOND,)),
    VersionedEdge("queued",   "dead_lettered", "job_dead_lettered", (FIRST,)),
    VersionedEdge("assigned", "dead_lettered", "job_dead_lettered", (FIRST,)),
    VersionedEdge("running",  "dead_lettered", "job_dead_lettered", (FIRST,)),
)

_INBOX   = "an inbox before the queue"
_WAIT    = "a job may wait without an owner; this seed knows no waiting"
_RETRY   = "\"Retryable errors follow exponential backoff\": the job is queued again and is not yet due"
_ORPHAN  = "\"Ownership loss: if lease expires, job returns to queued (or DLQ if max attempts exceeded)\""
_CANCEL  = "\"cancelled by user/system policy before completion\", whatever the job was waiting for"
_RENEWAL = "\"Lease & Heartbeats\": a renewal is an event of its own and no transition"

DIALECT = Dialect(
    name="reliability",
    seed="002_bd2f813709214918.txt",
    summary="distributed reliability: leases, dead letters, monotonic attempts; two stacked versions",
    states=STATES,
    events=("job_claimed", "job_started", "job_lease_renewed", "job_heartbeat", "job_succeeded", "job_failed",
            "job_cancelled", "job_dead_lettered", "job_compensated"),
    table={state: {edge.event: edge.target for edge in EDGES if edge.source == state} for state in (INITIAL, *STATES)},
    literal=frozenset(Move(edge.source, edge.event, edge.target) for edge in EDGES),
    versions={Move(edge.source, edge.event, edge.target): edge.versions for edge in EDGES},
    names={
        INBOX: "queued",         # stand-in
        QUEUED: "queued",
        RETRYING: "queued",      # stand-in
        CLAIMED: "assigned",
        RUNNING: "running",
        WAITING: "queued",       # stand-in
        PARKED: "queued",        # stand-in
        STALLED: "queued",       # stand-in: "orphaned and eligible for re-claim"
        SUCCEEDED: "succeeded",
        FAILED: "failed",
        CANCELLED: "cancelled",
        DEAD_LETTERED: "dead_lettered",
    },
    stand_ins=frozenset({INBOX, RETRYING, WAITING, PARKED, STALLED}),
    said={
        e.Received:     Said("job_enqueued"),
        e.Enqueued:     Said("job_enqueued", {INBOX: None}),
        e.Claimed:      Said("job_claimed"),
        e.Started:      Said("job_started"),
        e.Suspended:    Said("job_suspended", {QUEUED: None}),
        e.Parked:       Said("job_suspended"),
        e.Resumed:      Said(None),
        e.Succeeded:    Said("job_succeeded"),
        e.Retried:      Said("job_retried"),
        e.Released:     Said("job_released"),
        e.Stalled:      Said("job_orphaned"),
        e.Requeued:     Said("job_requeued", {QUEUED: None, RETRYING: None, STALLED: None}),
        e.Failed:       Said("job_failed"),
        e.DeadLettered: Said("job_dead_lettered"),
        e.Cancelled:    Said("job_cancelled"),
    },
    said_of_renewal="job_lease_renewed",
    derived={
        "job_enqueued": "queued", "job_claimed": "assigned", "job_started": "running", "job_succeeded": "succeeded",
        "job_failed": "failed", "job_cancelled": "cancelled", "job_dead_lettered": "dead_lettered",
        "job_suspended": "queued", "job_retried": "queued", "job_released": "queued", "job_orphaned": "queued",
        "job_requeued": "queued",
    },
    extensions=(
        Extension(None,           (CLAIMED, RUNNING),        Basis.SEED, _RENEWAL),
        Extension(e.Received,     (None,),                   Basis.OURS, _INBOX),
        Extension(e.Enqueued,     (INBOX,),                  Basis.OURS, _INBOX),
        Extension(e.Claimed,      (RETRYING,),               Basis.SEED, _RETRY),
        Extension(e.Claimed,      (STALLED,),                Basis.SEED, "\"On lease expiry, another worker may claim\""),
        Extension(e.Suspended,    (QUEUED, RUNNING),         Basis.OURS, _WAIT),
        Extension(e.Parked,       (RUNNING,),                Basis.OURS, _WAIT),
        Extension(e.Resumed,      (WAITING, PARKED),         Basis.OURS, _WAIT),
        Extension(e.Retried,      (CLAIMED, RUNNING),        Basis.SEED, _RETRY),
        Extension(e.Released,     (CLAIMED, RUNNING),        Basis.OURS, "an owner that shuts down gives the job back at once, instead of letting its lease expire"),
        Extension(e.Stalled,      (CLAIMED, RUNNING),        Basis.SEED, _ORPHAN),
        Extension(e.Requeued,     (RETRYING,),               Basis.OURS, "an operator may cut a backoff short"),
        Extension(e.Requeued,     (STALLED,),                Basis.SEED, _ORPHAN),
        Extension(e.Requeued,     (FAILED, DEAD_LETTERED),   Basis.OURS, "an operator may reopen a closed job, with a reason"),
        Extension(e.Failed,       (CLAIMED,),                Basis.OURS, "an attempt may fail before its handler is entered"),
        Extension(e.Failed,       (STALLED,),                Basis.SEED, "\"exceeding max attempts transitions to failed or dead_lettered per policy\""),
        Extension(e.DeadLettered, (INBOX,),                  Basis.OURS, _INBOX),
        Extension(e.DeadLettered, (RETRYING,),               Basis.SEED, _RETRY),
        Extension(e.DeadLettered, (WAITING, PARKED),         Basis.OURS, _WAIT),
        Extension(e.DeadLettered, (STALLED,),                Basis.SEED, _ORPHAN),
        Extension(e.Cancelled,    (INBOX, WAITING, PARKED),  Basis.SEED, _CANCEL),
        Extension(e.Cancelled,    (RETRYING,),               Basis.SEED, _RETRY),
        Extension(e.Cancelled,    (STALLED,),                Basis.SEED, _ORPHAN),
    ),
)
# fmt: on
