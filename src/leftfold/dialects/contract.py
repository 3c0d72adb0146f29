"""Seed 003: the contract v1. Six statuses, authoritative transitions, invariants for each status."""

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
from leftfold.dialects.dialect import INITIAL, Basis, Dialect, Extension, Said, cells

# fmt: off
#: "Allowed transitions (authoritative)", keyed by the canonical event types of "Event semantics".
TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    INITIAL:     {"enqueued": "queued"},
    "queued":    {"claimed": "claimed"},
    "claimed":   {"started": "running", "heartbeat": "claimed", "stalled": "stalled"},
    "running":   {"heartbeat": "running", "succeeded": "succeeded", "failed": "failed", "stalled": "stalled"},
    "succeeded": {},
    "failed":    {},
    "stalled":   {"claimed": "claimed", "requeued": "queued"},
}

_INBOX  = "an inbox before the queue"
_RETRY  = "a failed attempt may be tried again; here `failed` is the end and backoff belongs to another plan. `queued` stands in, with the error"
_WAIT   = "a job may wait without an owner; `stalled` stands in, for it too is nobody's and comes back by being queued"
_LETTER = "dead letters are set aside with a reason; here `failed` is the end"
_CANCEL = "this contract has no cancellation; `failed` stands in, without an error"

DIALECT = Dialect(
    name="contract",
    seed="003_fc5ab45b56d2e679.txt",
    summary="the contract v1: six statuses, strict transitions, invariants per status",
    states=tuple(state for state in TABLE if state != INITIAL),
    events=("enqueued", "claimed", "started", "heartbeat", "succeeded", "failed", "stalled", "requeued"),
    table=TABLE,
    literal=cells(TABLE),
    names={
        INBOX: "queued",         # stand-in
        QUEUED: "queued",
        RETRYING: "queued",      # stand-in
        CLAIMED: "claimed",
        RUNNING: "running",
        WAITING: "stalled",      # stand-in: no owner, no lease, not eligible
        PARKED: "stalled",       # stand-in
        STALLED: "stalled",
        SUCCEEDED: "succeeded",
        FAILED: "failed",
        CANCELLED: "failed",     # stand-in
        DEAD_LETTERED: "failed", # stand-in
    },
    stand_ins=frozenset({INBOX, RETRYING, WAITING, PARKED, CANCELLED, DEAD_LETTERED}),
    said={
        e.Received:     Said("enqueued"),
        e.Enqueued:     Said("enqueued", {INBOX: None}),
        e.Claimed:      Said("claimed"),
        e.Started:      Said("started"),
        e.Suspended:    Said("suspended"),
        e.Parked:       Said("parked"),
        e.Resumed:      Said("resumed"),
        e.Succeeded:    Said("succeeded"),
        e.Retried:      Said("retried"),
        e.Released:     Said("released"),
        e.Stalled:      Said("stalled"),
        e.Requeued:     Said("requeued"),
        e.Failed:       Said("failed"),
        e.DeadLettered: Said("dead_lettered"),
        e.Cancelled:    Said("cancelled"),
    },
    said_of_renewal="heartbeat",
    derived={
        "enqueued": "queued", "claimed": "claimed", "started": "running", "succeeded": "succeeded",
        "failed": "failed", "stalled": "stalled", "requeued": "queued", "suspended": "stalled",
        "parked": "stalled", "resumed": "queued", "retried": "queued", "released": "queued",
        "dead_lettered": "failed", "cancelled": "failed",
    },
    extensions=(
        Extension(e.Received,     (None,),                Basis.OURS, _INBOX),
        Extension(e.Enqueued,     (INBOX,),               Basis.OURS, _INBOX),
        Extension(e.Claimed,      (RETRYING,),            Basis.OURS, _RETRY),
        Extension(e.Suspended,    (QUEUED, RUNNING),      Basis.OURS, _WAIT),
        Extension(e.Parked,       (RUNNING,),             Basis.OURS, _WAIT),
        Extension(e.Resumed,      (WAITING, PARKED),      Basis.OURS, _WAIT),
        Extension(e.Retried,      (CLAIMED, RUNNING),     Basis.OURS, _RETRY),
        Extension(e.Released,     (CLAIMED, RUNNING),     Basis.OURS, "an owner that shuts down gives the job back at once, instead of letting it stall"),
        Extension(e.Requeued,     (QUEUED,),              Basis.OURS, "an operator may move the due time of a queued job"),
        Extension(e.Requeued,     (RETRYING,),            Basis.OURS, _RETRY),
        Extension(e.Requeued,     (FAILED,),              Basis.OURS, "an operator may reopen a failed job, with a reason; here it is terminal"),
        Extension(e.Requeued,     (DEAD_LETTERED,),       Basis.OURS, _LETTER),
        Extension(e.Failed,       (CLAIMED,),             Basis.OURS, "an attempt may fail before its handler is entered; here it can only stall"),
        Extension(e.Failed,       (STALLED,),             Basis.OURS, "a job whose owners keep dying ends; here it can only stay stalled or be queued again"),
        Extension(e.DeadLettered, (INBOX, QUEUED, RETRYING, CLAIMED, RUNNING, WAITING, PARKED, STALLED),
                                                          Basis.OURS, _LETTER),
        Extension(e.Cancelled,    (INBOX, QUEUED, RETRYING, CLAIMED, RUNNING, WAITING, PARKED, STALLED),
                                                          Basis.OURS, _CANCEL),
    ),
)
# fmt: on
