"""Seed 004: two machines. A task lives through the whole job, a run through one attempt.

The seed has no event names; its commands (`task:create`, `task:update TASK STATUS`, `run:update RUN STATUS`) say
the new status, so the names here are those commands. Names that its examples do not show are marked as ours.
"""

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
from leftfold.dialects.dialect import INITIAL, Basis, Dialect, Extension, Move, Said

# fmt: off
#: §1, "can change to".
TASK: Final[Mapping[str, tuple[str, ...]]] = {
    "inbox":     ("todo", "cancelled"),
    "todo":      ("doing", "blocked", "cancelled"),
    "doing":     ("done", "blocked", "cancelled"),
    "blocked":   ("todo", "doing", "cancelled"),
    "done":      (),
    "cancelled": (),
}
#: §2, "can change to".
RUN: Final[Mapping[str, tuple[str, ...]]] = {
    "queued":    ("running", "cancelled"),
    "running":   ("succeeded", "failed", "timeout", "cancelled"),
    "succeeded": (),
    "failed":    (),
    "timeout":   (),
    "cancelled": (),
}
TASK_INITIAL: Final = "inbox"
RUN_INITIAL:  Final = "queued"

_RECOVERY = "§5, recovery: the Heartbeat finds what is blocked and queues it again"
_FAILED   = "§6 keeps \"failed (no retry)\" for 14 days, but no status says it; `blocked` stands in until a human decides"
_LETTER   = "dead letters are set aside with a reason; `blocked` stands in"
_PARKED   = "a wait with nothing to poll; `blocked` stands in, which the Heartbeat polls"

#: How an attempt's last event ends its run. §2: "cancelled by the user, or the worker was killed".
RUN_END: Final[Mapping[type[e.AnyTransition], str]] = {
    e.Succeeded:    "succeeded",
    e.Retried:      "failed",
    e.Failed:       "failed",
    e.DeadLettered: "failed",
    e.Released:     "cancelled",
    e.Suspended:    "cancelled",
    e.Parked:       "cancelled",
    e.Stalled:      "cancelled",
    e.Cancelled:    "cancelled",
}
TIMEOUT: Final = "timeout"

_UNSTARTED = "an attempt may fail before its handler is entered; §2 lets a queued run only run or be cancelled"
RUN_EXTENSIONS: Final = (
    Extension(e.Retried,      (CLAIMED,), Basis.OURS, _UNSTARTED),
    Extension(e.Failed,       (CLAIMED,), Basis.OURS, _UNSTARTED),
    Extension(e.DeadLettered, (CLAIMED,), Basis.OURS, _UNSTARTED),
)
RUN_EVENTS: Final = ("run:create", "run:update running", "run:update succeeded", "run:update failed")

DIALECT = Dialect(
    name="quality",
    seed="004_212d02670cbba488.txt",
    summary="the quality platform: a task machine over the job, a run machine over each attempt",
    states=tuple(TASK),
    events=("task:create", "task:update todo", "task:update blocked", "task:update done"),
    initial=(TASK_INITIAL,),
    table=TASK,
    literal=frozenset({Move(INITIAL, None, TASK_INITIAL)}
                      | {Move(source, None, target) for source, targets in TASK.items() for target in targets}),
    names={
        INBOX: "inbox",
        QUEUED: "todo",
        RETRYING: "blocked",      # §1: "failed, can be retried"
        CLAIMED: "doing",
        RUNNING: "doing",
        WAITING: "blocked",       # §1: "dependency not met"
        PARKED: "blocked",        # stand-in
        STALLED: "blocked",       # stand-in
        SUCCEEDED: "done",
        FAILED: "blocked",        # stand-in
        CANCELLED: "cancelled",
        DEAD_LETTERED: "blocked", # stand-in
    },
    stand_ins=frozenset({PARKED, STALLED, FAILED, DEAD_LETTERED}),
    said={
        e.Received:     Said("task:create"),
        e.Enqueued:     Said("task:update todo"),
        e.Claimed:      Said("task:update doing"),
        e.Started:      Said(None),
        e.Suspended:    Said("task:update blocked"),
        e.Parked:       Said("task:update blocked"),
        e.Resumed:      Said("task:update todo"),
        e.Succeeded:    Said("task:update done"),
        e.Retried:      Said("task:update blocked"),
        e.Released:     Said("task:update todo"),
        e.Stalled:      Said("task:update blocked"),
        e.Requeued:     Said("task:update todo"),
        e.Failed:       Said("task:update blocked"),
        e.DeadLettered: Said("task:update blocked"),
        e.Cancelled:    Said("task:update cancelled"),
    },
    said_of_renewal=None,
    derived={"task:create": "inbox"} | {f"task:update {state}": state for state in TASK},
    extensions=(
        Extension(e.Enqueued,     (None,),                    Basis.SEED, "§8 posts a task straight into the queue, so that it is never seen in the inbox"),
        Extension(e.Claimed,      (STALLED,),                 Basis.SEED, "§1 lets blocked go to doing"),
        Extension(e.Parked,       (RUNNING,),                 Basis.OURS, _PARKED),
        Extension(e.Resumed,      (PARKED,),                  Basis.SEED, "§1 lets blocked go back to todo"),
        Extension(e.Released,     (CLAIMED, RUNNING),         Basis.OURS, "a worker that shuts down gives the task back; here doing never goes back to todo"),
        Extension(e.Stalled,      (CLAIMED, RUNNING),         Basis.SEED, "§2 knows killed workers; the task is blocked until the Heartbeat finds it (§5)"),
        Extension(e.Requeued,     (QUEUED,),                  Basis.OURS, "an operator may move the due time of a queued task"),
        Extension(e.Requeued,     (STALLED,),                 Basis.SEED, _RECOVERY),
        Extension(e.Requeued,     (FAILED,),                  Basis.SEED, "§1 lets blocked go back to todo"),
        Extension(e.Requeued,     (DEAD_LETTERED,),           Basis.OURS, _LETTER),
        Extension(e.Failed,       (CLAIMED, RUNNING, STALLED), Basis.SEED, _FAILED),
        Extension(e.DeadLettered, (INBOX, QUEUED, RETRYING, CLAIMED, RUNNING, WAITING, PARKED, STALLED),
                                                              Basis.OURS, _LETTER),
        Extension(e.Cancelled,    (PARKED, STALLED),          Basis.SEED, "\"Any state can change to cancelled\""),
    ),
    has_runs=True,
    run_extensions=RUN_EXTENSIONS,
)
# fmt: on
