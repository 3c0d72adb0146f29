"""The events: one frozen type per fact, past tense, each with the name it has on the wire.

A wire name and the meaning of a field never change; a field may be added, with a default.
"""

from collections.abc import Mapping
from typing import Final, get_args

import msgspec
from msgspec import Raw

from leftfold.core.frozen import Frozen
from leftfold.core.letters import LEASE_EXPIRED, Reason, Stage
from leftfold.core.notes import (
    CancelDelivered,
    CancelRequested,
    Compensated,
    Custom,
    Event,
    EvidenceAdded,
    NodeFinished,
    NodeStarted,
    Note,
    OperatorsNote,
    OwnersNote,
    PlanGenerated,
    Progress,
    Remarked,
    Resolved,
    Signalled,
    Starved,
    StepFinished,
    StepStarted,
    ToolInvocationFinished,
    ToolInvocationStarted,
    Transition,
)  # fmt: skip
from leftfold.core.payload import NULL
from leftfold.core.retry import DEFAULT_POLICY, Policy
from leftfold.core.values import Answer, CancelMode, Failure, Outcomes, Spec, Wait

__all__ = [
    "BY_WIRE",
    "LEASE_EXPIRED",
    "NOTES",
    "TRANSITIONS",
    "AnyEvent",
    "AnyNote",
    "AnyTransition",
    "CancelDelivered",
    "CancelRequested",
    "Cancelled",
    "Claimed",
    "Compensated",
    "Custom",
    "DeadLettered",
    "Enqueued",
    "Event",
    "EvidenceAdded",
    "Failed",
    "NodeFinished",
    "NodeStarted",
    "Note",
    "OperatorsNote",
    "OwnersNote",
    "Parked",
    "PlanGenerated",
    "Progress",
    "Received",
    "Released",
    "Remarked",
    "Renewed",
    "Requeued",
    "Resolved",
    "Resumed",
    "Retried",
    "Signalled",
    "Stalled",
    "Started",
    "Starved",
    "StepFinished",
    "StepStarted",
    "Succeeded",
    "Suspended",
    "ToolInvocationFinished",
    "ToolInvocationStarted",
    "Transition",
]  # fmt: skip


class Received(Transition):
    """A job came in and is not yet admitted."""

    wire = "received"
    spec: Spec


class Enqueued(Transition):
    """The job may be claimed once it is due: now, if it does not say. Without a `spec`, that of `received` stands."""

    wire = "enqueued"
    due: int | None = None
    policy: Policy = DEFAULT_POLICY
    spec: Spec | None = None


class Claimed(Transition):
    """One owner has it: who says so. The log keeps the digest of the token, never the token."""

    wire = "claimed"
    token: str
    lease: int = DEFAULT_POLICY.lease


class Started(Transition):
    """The handler was entered."""

    wire = "started"


class Suspended(Transition):
    """The job waits and holds no lease."""

    wire = "suspended"
    wait: Wait


class Parked(Transition):
    """The job waits for a signal, with nothing to poll."""

    wire = "parked"
    wait: Wait


class Resumed(Transition):
    """The wait is over; the answer is kept under the wait's key."""

    wire = "resumed"
    key: str
    payload: Raw = NULL
    expired: bool = False
    outcomes: Outcomes = msgspec.field(default_factory=dict)

    def answer(self, wait: Wait) -> Answer:
        """Give what the handler will find under the key."""
        payload = Raw(msgspec.json.encode(self.outcomes)) if self.outcomes else self.payload
        return Answer(payload=payload, expired=self.expired, until=wait.until)


class Succeeded(Transition):
    """The handler returned."""

    wire = "succeeded"
    result: Raw = NULL


class Retried(Transition):
    """The attempt failed and there will be another."""

    wire = "retried"
    error: Failure
    due: int


class Released(Transition):
    """The owner gave the job back, uncharged: a shutdown or a snooze."""

    wire = "released"
    due: int
    reason: str | None = None


class Stalled(Transition):
    """The owner is no longer trusted."""

    wire = "stalled"
    owner: str
    lease_until: int
    reason: str | None = None

    @property
    def error(self) -> Failure:
        """Give the attempt's end as a failure like any other."""
        return Failure(code=LEASE_EXPIRED, message=self.reason or f"{self.owner} is no longer trusted")


class Requeued(Transition):
    """The job may be claimed again."""

    wire = "requeued"
    due: int
    reason: str | None = None


class Failed(Transition):
    """The job failed for good."""

    wire = "failed"
    error: Failure


class DeadLettered(Transition):
    """The job was set aside, with everything that its incident needs."""

    wire = "dead_lettered"
    error: Failure
    reason_code: Reason
    stage: Stage
    last_error: Failure | None
    attempts: int
    last_owner: str | None
    last_lease_expires_at: int | None
    correlation_id: str | None
    incident: str | None = None


class Cancelled(Transition):
    """The job will not run any more. `error` is what the last attempt ended with, if it ended so."""

    wire = "cancelled"
    mode: CancelMode
    reason: str | None = None
    error: Failure | None = None


class Renewed(Frozen):
    """The owner is alive: the lease now ends at `until`. It is no event: it bumps `rev` and is not on the log."""

    until: int
    request_id: str | None = None
    request_hash: str | None = None


# A new event belongs into these unions; the type checker then names the places that lack a case for it.
AnyTransition = (
    Received | Enqueued | Claimed | Started | Suspended | Parked | Resumed | Succeeded | Retried | Released
    | Stalled | Requeued | Failed | DeadLettered | Cancelled
)  # fmt: skip
AnyNote = (
    CancelRequested | CancelDelivered | Starved | Signalled | Progress | PlanGenerated | NodeStarted | NodeFinished
    | StepStarted | StepFinished | ToolInvocationStarted | ToolInvocationFinished | EvidenceAdded | Compensated | Custom
    | Remarked | Resolved
)  # fmt: skip
AnyEvent = AnyTransition | AnyNote

TRANSITIONS: Final[tuple[type[AnyTransition], ...]] = get_args(AnyTransition)
NOTES: Final[tuple[type[AnyNote], ...]] = get_args(AnyNote)

BY_WIRE: Final[Mapping[str, type[AnyEvent]]] = {event.wire: event for event in (*TRANSITIONS, *NOTES)}
