"""Seed 000: eight states, ten events, and a table of (state × event)."""

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
from leftfold.dialects.dialect import INITIAL, Basis, Dialect, Extension, Move, Said, Unreached, cells

# fmt: off
#: §3, cell by cell.
TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    INITIAL:     {"job_created": "Queued", "job_queued": "Queued", "job_requeued": "Queued"},
    "Queued":    {"job_requeued": "Queued", "job_leased": "Running", "job_running": "Running",
                  "wait_completed": "Queued"},
    "Running":   {"job_requeued": "Queued", "job_waiting": "Waiting", "wait_completed": "Queued",
                  "job_completed": "Completed", "job_failed": "Failed", "job_cancelled": "Cancelled"},
    "Waiting":   {"wait_completed": "Queued", "job_cancelled": "Cancelled"},
    "Parked":    {"wait_completed": "Queued", "job_cancelled": "Cancelled"},
    "Retrying":  {"job_requeued": "Queued", "job_leased": "Running", "job_running": "Running",
                  "wait_completed": "Queued"},
    "Completed": {},
    "Failed":    {"job_requeued": "Queued"},
    "Cancelled": {},
}

_LEASE_FIRST = "a claim is recorded as job_leased; entering the handler then changes nothing that §3 can see"
_WAIT_FIRST  = "§5.2 ties wait_completed to a wait; on a claimable or running job it would hand it out twice"

DIALECT = Dialect(
    name="formal",
    seed="000_651bda8f474453a4.txt",
    summary="the formal state machine: eight states, ten events, one table",
    states=tuple(state for state in TABLE if state != INITIAL),
    events=("job_created", "job_queued", "job_requeued", "job_leased", "job_running", "job_waiting",
            "wait_completed", "job_completed", "job_failed", "job_cancelled"),
    table=TABLE,
    literal=cells(TABLE),
    names={
        INBOX: "Queued",         # stand-in: created, and DeriveStatusFromEvents reads that as Pending
        QUEUED: "Queued",
        RETRYING: "Retrying",
        CLAIMED: "Running",      # §1 merges Leased into Running
        RUNNING: "Running",
        WAITING: "Waiting",
        PARKED: "Parked",
        STALLED: "Running",      # stand-in: to this seed a job runs until it is requeued
        SUCCEEDED: "Completed",
        FAILED: "Failed",
        CANCELLED: "Cancelled",
        DEAD_LETTERED: "Failed", # stand-in
    },
    stand_ins=frozenset({INBOX, STALLED, DEAD_LETTERED}),
    said={
        e.Received:     Said("job_created"),
        e.Enqueued:     Said("job_created", {INBOX: "job_queued"}),
        e.Claimed:      Said("job_leased"),
        e.Started:      Said(None),
        e.Suspended:    Said("job_waiting"),
        e.Parked:       Said("job_waiting"),
        e.Resumed:      Said("wait_completed"),
        e.Succeeded:    Said("job_completed"),
        e.Retried:      Said("job_requeued"),
        e.Released:     Said("job_requeued"),
        e.Stalled:      Said(None),
        e.Requeued:     Said("job_requeued"),
        e.Failed:       Said("job_failed"),
        e.DeadLettered: Said("job_failed"),
        e.Cancelled:    Said("job_cancelled"),
    },
    said_of_renewal=None,
    # §4, the mapping of DeriveStatusFromEvents.
    derived={
        "job_created": "Queued", "job_queued": "Queued", "job_requeued": "Queued", "job_leased": "Running",
        "job_running": "Running", "job_waiting": "Waiting", "wait_completed": "Queued",
        "job_completed": "Completed", "job_failed": "Failed", "job_cancelled": "Cancelled",
    },
    mergers=(frozenset({"Parked", "Waiting"}), frozenset({"Retrying", "Queued"})),
    extensions=(
        Extension(e.Received,     (None,),               Basis.OURS, "an inbox before the queue"),
        Extension(e.Enqueued,     (INBOX,),              Basis.OURS, "an inbox before the queue"),
        Extension(e.Claimed,      (STALLED,),            Basis.OURS, "a stalled job can be claimed by its id, without a requeue in between"),
        Extension(e.Suspended,    (QUEUED,),             Basis.OURS, "a job can wait for others before its first attempt"),
        Extension(e.Parked,       (RUNNING,),            Basis.SEED, "§1 has Parked and §5.2 says its last event is job_waiting, but no cell of §3 leads there"),
        Extension(e.Retried,      (CLAIMED, RUNNING),    Basis.SEED, "§1 has Retrying and §4 invites making it explicit, but no cell of §3 leads there"),
        Extension(e.Stalled,      (CLAIMED, RUNNING),    Basis.SEED, "§5.4 speaks of Reclaim: the owner is lost before the job is requeued"),
        Extension(e.Requeued,     (STALLED,),            Basis.SEED, "§3, job_requeued on Running: the requeue that follows a lost owner"),
        Extension(e.Requeued,     (DEAD_LETTERED,),      Basis.OURS, "a dead letter is reopened like a failed job"),
        Extension(e.Failed,       (STALLED,),            Basis.SEED, "§3, job_failed on Running: the owner is lost, so the keeper writes it"),
        Extension(e.DeadLettered, (INBOX, QUEUED, RETRYING, CLAIMED, RUNNING, WAITING, PARKED, STALLED),
                                                         Basis.OURS, "dead letters are set aside with a reason; this seed knows Failed alone"),
        Extension(e.Cancelled,    (INBOX,),              Basis.OURS, "an inbox before the queue"),
        Extension(e.Cancelled,    (QUEUED, RETRYING),    Basis.OURS, "§3 has no cell for it, so a queued job could never be cancelled"),
        Extension(e.Cancelled,    (STALLED,),            Basis.SEED, "§3, job_cancelled on Running: the owner is lost, so the keeper writes it"),
    ),
    unreached=(
        Unreached(Move(INITIAL, "job_queued", "Queued"),       "creation writes one event, job_created"),
        Unreached(Move(INITIAL, "job_requeued", "Queued"),     "a log begins with the job's creation"),
        Unreached(Move("Queued", "job_running", "Running"),    _LEASE_FIRST),
        Unreached(Move("Retrying", "job_running", "Running"),  _LEASE_FIRST),
        Unreached(Move("Queued", "wait_completed", "Queued"),  _WAIT_FIRST),
        Unreached(Move("Running", "wait_completed", "Queued"), _WAIT_FIRST),
        Unreached(Move("Retrying", "wait_completed", "Queued"), _WAIT_FIRST),
    ),
)
# fmt: on
