"""The notes: facts about a job that change no state, and what every event has in common."""

from typing import ClassVar

from msgspec import Raw

from leftfold.core.frozen import Frozen
from leftfold.core.payload import NULL


class Event(Frozen):
    """A fact about one job."""

    wire: ClassVar[str]


class Transition(Event):
    """A fact that moves the job to another state, as `lifecycle.TABLE` says."""


class Note(Event):
    """A fact that changes no state."""


class OwnersNote(Note):
    """A note about what only the handler can know: nobody but the owner writes it."""


class OperatorsNote(Note):
    """A note that only an operator writes."""


class CancelRequested(Note):
    """Somebody asked the owner to stop."""

    wire = "cancel_requested"
    reason: str | None = None


class CancelDelivered(OwnersNote):
    """The handler was told to stop; it may take its time to."""

    wire = "cancel_delivered"


class Starved(Note):
    """Nothing else of the worker ran for so long, in microseconds, its renewals neither: why it lost the job."""

    wire = "starved"
    attempt: int
    length: int


class Signalled(Note):
    """A signal came before the wait for it; it is kept under its key."""

    wire = "signalled"
    key: str
    payload: Raw = NULL


class Progress(OwnersNote):
    """How far the handler is, from 0 to 1."""

    wire = "progress"
    fraction: float
    message: str | None = None


class PlanGenerated(OwnersNote):
    """The job's plan was fixed; a replay never plans anew."""

    wire = "plan_generated"
    plan: Raw


class NodeStarted(OwnersNote):
    """A node of the plan was entered."""

    wire = "node_started"
    node: str
    data: Raw = NULL


class NodeFinished(OwnersNote):
    """A node of the plan was left."""

    wire = "node_finished"
    node: str
    data: Raw = NULL


class StepStarted(OwnersNote):
    """A recorded step was entered; until it is finished, its effect is unknown."""

    wire = "step_started"
    step: str
    data: Raw = NULL


class StepFinished(OwnersNote):
    """A recorded step has its result and is not paid for again."""

    wire = "step_finished"
    step: str
    result: Raw = NULL


class ToolInvocationStarted(OwnersNote):
    """A tool with outside effects is about to be called."""

    wire = "tool_invocation_started"
    tool: str
    invocation: str
    data: Raw = NULL


class ToolInvocationFinished(OwnersNote):
    """The tool answered."""

    wire = "tool_invocation_finished"
    tool: str
    invocation: str
    data: Raw = NULL


class EvidenceAdded(Note):
    """Something that must stand up later."""

    wire = "evidence_added"
    name: str
    data: Raw = NULL


class Compensated(OwnersNote):
    """The effect of a step was undone."""

    wire = "compensated"
    step: str
    data: Raw = NULL


class Custom(Note):
    """A note of the user's own."""

    wire = "custom"
    name: str
    data: Raw = NULL


class Remarked(OperatorsNote):
    """What an operator wants others to know."""

    wire = "remarked"
    text: str


class Resolved(OperatorsNote):
    """A dead letter was settled: it stays as it is, and counts no more among those that need somebody."""

    wire = "resolved"
    reason: str
