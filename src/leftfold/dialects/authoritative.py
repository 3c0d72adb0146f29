"""Seed 001: the authoritative state model. It gives the states that each event leads to, and no sources."""

from collections.abc import Mapping
from typing import Final

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
from leftfold.dialects.dialect import Basis, Dialect, Extension, Move, Said, Unreached

# fmt: off
#: "Events and transitions", row by row.
TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "job_created":    ("Queued",),
    "job_requeued":   ("Queued", "Retrying"),
    "job_leased":     ("Leased",),
    "job_running":    ("Running",),
    "job_waiting":    ("Waiting",),
    "wait_completed": ("Queued", "Running"),
    "job_completed":  ("Completed",),
    "job_failed":     ("Failed",),
    "job_cancelled":  ("Cancelled",),
}

DIALECT = Dialect(
    name="authoritative",
    seed="001_0f1b253d3730a2cf.txt",
    summary="the authoritative state model: Leased apart from Running, targets per event",
    states=("Queued", "Leased", "Running", "Waiting", "Retrying", "Completed", "Failed", "Cancelled"),
    events=tuple(TARGETS),
    table=TARGETS,
    literal=frozenset(Move(None, event, target) for event, targets in TARGETS.items() for target in targets),
    names={
        INBOX: "Queued",         # stand-in
        QUEUED: "Queued",
        RETRYING: "Retrying",
        CLAIMED: "Leased",
        RUNNING: "Running",
        WAITING: "Waiting",
        PARKED: "Waiting",       # stand-in
        STALLED: "Running",      # stand-in: to this seed a job runs until it is requeued
        SUCCEEDED: "Completed",
        FAILED: "Failed",
        CANCELLED: "Cancelled",
        DEAD_LETTERED: "Failed", # stand-in
    },
    stand_ins=frozenset({INBOX, PARKED, STALLED, DEAD_LETTERED}),
    said={
        e.Received:     Said("job_created"),
        e.Enqueued:     Said("job_created", {INBOX: None}),
        e.Claimed:      Said("job_leased"),
        e.Started:      Said("job_running"),
        e.Suspended:    Said("job_waiting"),
        e.Parked:       Said("job_waiting"),
        e.Resumed:      Said("wait_completed"),
        e.Succeeded:    Said("job_completed"),
        e.Retried:      Said("job_requeued"),
        e.Released:     Said("job_requeued"),
        e.Stalled:      Said("job_stalled"),
        e.Requeued:     Said("job_requeued"),
        e.Failed:       Said("job_failed"),
        e.DeadLettered: Said("job_failed"),
        e.Cancelled:    Said("job_cancelled"),
    },
    said_of_renewal=None,
    derived={
        "job_created": "Queued", "job_requeued": "Queued", "job_leased": "Leased", "job_running": "Running",
        "job_waiting": "Waiting", "wait_completed": "Queued", "job_completed": "Completed",
        "job_failed": "Failed", "job_cancelled": "Cancelled", "job_stalled": "Running",
    },
    mergers=(frozenset({"Retrying", "Queued"}),),
    extensions=(
        Extension(e.Received,     (None,),            Basis.OURS, "an inbox before the queue"),
        Extension(e.Enqueued,     (INBOX,),           Basis.OURS, "an inbox before the queue"),
        Extension(e.Claimed,      (STALLED,),         Basis.OURS, "a stalled job can be claimed by its id, without a requeue in between"),
        Extension(e.Parked,       (RUNNING,),         Basis.OURS, "a wait with nothing to poll; this seed knows Waiting alone"),
        Extension(e.Resumed,      (PARKED,),          Basis.SEED, "wait_completed leads to Queued from anywhere"),
        Extension(e.Stalled,      (CLAIMED, RUNNING), Basis.SEED, "job_requeued is asked for; a job whose owner was lost is requeued, and that it was lost is recorded first"),
        Extension(e.Requeued,     (STALLED,),         Basis.SEED, "\"Requeue writes job_requeued\", without saying out of which state"),
        Extension(e.Requeued,     (DEAD_LETTERED,),   Basis.OURS, "a dead letter is reopened like a failed job"),
        Extension(e.Failed,       (STALLED,),         Basis.SEED, "job_failed leads to Failed from anywhere; the owner is lost, so the keeper writes it"),
        Extension(e.DeadLettered, (INBOX, QUEUED, RETRYING, CLAIMED, RUNNING, WAITING, PARKED, STALLED),
                                                      Basis.OURS, "dead letters are set aside with a reason; this seed knows Failed alone"),
        Extension(e.Cancelled,    (INBOX, PARKED, STALLED), Basis.SEED, "job_cancelled leads to Cancelled from anywhere"),
    ),
    unreached=(
        Unreached(Move(None, "wait_completed", "Running"), "the lease ends with job_waiting, so only a new claim can run the job"),
    ),
)
# fmt: on
