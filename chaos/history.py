"""A job's log as the campaign's checker reads it, with its own table of what may follow what.

Nothing of the engine is asked: the table is written from the design, once more, by hand.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "dead_lettered"})
CLOSED: Final = frozenset({"failed", "dead_lettered"})
LEASED: Final = frozenset({"claimed", "running"})
_OPEN: Final = ("inbox", "queued", "retrying", "waiting", "parked", "stalled")

#: The event, where it may come from ("" is a new job), where it leads, and who may say it.
_TABLE: Final = (
    ("received",      ("",),                              "inbox",         "client"),
    ("enqueued",      ("", "inbox"),                      "queued",        "client"),
    ("claimed",       ("queued", "retrying", "stalled"),  "claimed",       "worker"),
    ("started",       ("claimed",),                       "running",       "owner"),
    ("suspended",     ("queued",),                        "waiting",       "client"),
    ("suspended",     ("running",),                       "waiting",       "owner"),
    ("parked",        ("running",),                       "parked",        "owner"),
    ("resumed",       ("waiting",),                       "queued",        "client keeper"),
    ("resumed",       ("parked",),                        "queued",        "client"),
    ("succeeded",     ("running",),                       "succeeded",     "owner"),
    ("retried",       ("claimed", "running"),             "retrying",      "owner"),
    ("released",      ("claimed", "running"),             "queued",        "owner"),
    ("stalled",       ("claimed", "running"),             "stalled",       "keeper operator"),
    ("requeued",      ("queued", "retrying", "stalled"),  "queued",        "keeper operator"),
    ("requeued",      ("failed", "dead_lettered"),        "queued",        "operator"),
    ("failed",        ("claimed", "running"),             "failed",        "owner"),
    ("failed",        ("stalled",),                       "failed",        "keeper"),
    ("dead_lettered", ("inbox",),                         "dead_lettered", "client keeper operator"),
    ("dead_lettered", _OPEN[1:],                          "dead_lettered", "keeper operator"),
    ("dead_lettered", ("claimed", "running"),             "dead_lettered", "owner operator"),
    ("cancelled",     _OPEN,                              "cancelled",     "client keeper operator"),
    ("cancelled",     ("claimed", "running"),             "cancelled",     "client owner operator"),
)  # fmt: skip
MOVES: Final[Mapping[tuple[str, str], tuple[str, tuple[str, ...]]]] = {
    (source, event): (target, tuple(who.split())) for event, sources, target, who in _TABLE for source in sources
}
TRANSITIONS: Final = frozenset(event for event, *_ in _TABLE)
TARGETS: Final[Mapping[str, str]] = {event: target for event, _, target, _ in _TABLE}
#: Notes change no state; these may say them. Behind the end only operators speak, and of closed jobs only.
NOTES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("cancel_requested", "signalled"), ("client", "operator")),
    **dict.fromkeys(("remarked", "resolved"), ("operator",)),
    **dict.fromkeys(
        ("cancel_delivered", "progress", "plan_generated", "node_started", "node_finished", "step_started",
         "step_finished", "tool_invocation_started", "tool_invocation_finished", "compensated"), ("owner",)
    ),
    **dict.fromkeys(("evidence_added", "custom"), ("client", "worker", "owner", "keeper", "operator")),
    "starved": ("worker",),
}  # fmt: skip
#: Who says it where the export leaves that out.
_USUALLY: Final = {"enqueued": "client", "claimed": "worker", "started": "owner", "succeeded": "owner"}
#: What is charged to the budget, and from which states.
_CHARGED: Final = {"retried": LEASED, "failed": LEASED, "stalled": {"running"}}


class Event(NamedTuple):
    """A line of a log."""

    version: int
    at: int
    event: str
    who: str
    actor: str
    data: Mapping[str, Any]
    request_id: str | None = None


class Step(NamedTuple):
    """An event, and how the job stood before it and stands after it."""

    event: Event
    before: str
    after: str
    attempt: int  # after it
    owner: str  # who claimed last
    failures: int  # after it
    leased_at: int  # when it was claimed last
    cancelling: bool  # whether somebody had asked to stop, before it


def walk(log: Sequence[Event]) -> Iterator[Step]:
    """Follow a log, legal or not: an event that may not happen still leads where it says."""
    state, owner = "", ""
    attempt = failures = leased_at = 0
    cancelling = False
    for event in log:
        name, before = event.event, state
        state = TARGETS.get(name, state)
        if name == "claimed":
            attempt, owner, leased_at = attempt + 1, event.actor, event.at
        failures += before in _CHARGED.get(name, ())
        failures += name == "dead_lettered" and before in LEASED and event.who == "owner"
        yield Step(event, before, state, attempt, owner, failures, leased_at, cancelling)
        cancelling = cancelling or name == "cancel_requested"


def spec_of(log: Sequence[Event]) -> Mapping[str, Any]:
    """Give what was asked for: kind, payload, key."""
    specs = [event.data["spec"] for event in log if "spec" in event.data]
    return specs[-1] if specs else {}


def policy_of(log: Sequence[Event]) -> Mapping[str, Any]:
    """Give the policy as it was enqueued; what the log leaves out is the default."""
    policies = [event.data.get("policy", {}) for event in log if event.event == "enqueued"]
    return {"max_failures": 5, "lease": 60_000_000, **(policies[-1] if policies else {})}


def op_of(log: Sequence[Event]) -> str:
    """Give the name that the client gave to the job."""
    payload = spec_of(log).get("payload")
    return str(payload.get("op", "")) if isinstance(payload, dict) else ""


def answers_of(log: Iterable[Event]) -> Mapping[str, Sequence[Event]]:
    """Give what each wait of the job was answered with: by a signal before it or during it, or by its deadline."""
    found: dict[str, list[Event]] = {}
    for event in log:
        if event.event in {"signalled", "resumed"}:
            found.setdefault(event.data["key"], []).append(event)
    return found


def read_export(lines: Iterable[str]) -> dict[str, tuple[Event, ...]]:
    """Read the logs of all jobs out of an export."""
    found: dict[str, tuple[Event, ...]] = {}
    for text in lines:
        line = json.loads(text)
        if line["is"] == "job":
            found[line["id"]] = tuple(event for entry in line["log"] for event in _events(entry))
    return found


def _events(entry: Mapping[str, Any]) -> Iterator[Event]:
    """Give what was said at once: a claim that starts its job says two things, and its version is the second one's."""
    if entry["event"] != "claimed+started":
        yield _event(entry)
        return
    yield _event({**entry, "event": "claimed", "version": entry["version"] - 1})
    yield _event({**entry, "event": "started", "data": "{}", "request_id": None})


def _event(line: Mapping[str, Any]) -> Event:
    name = line["event"]
    who = line.get("who") or _USUALLY.get(name, "")
    return Event(
        line["version"], line["at"], name, who, line["actor"], json.loads(line["data"]), line.get("request_id")
    )
