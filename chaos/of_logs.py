"""What the log of each job must be by itself: its order, who may speak, and what may follow what."""

import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Final

from chaos.history import CLOSED, ENDED, LEASED, MOVES, NOTES, Event, Step, answers_of, policy_of, spec_of
from chaos.story import Found, Rule, Story

#: A new holder of a key bears the time at which its statement began, and that looks for the old one a moment later: as
#: long as a process of the server may have to wait for a core in between. Who waits for the end of the old one began
#: behind its time: that is read before the row is touched.
_KEY_SLACK: Final = 500_000
#: Once a cancellation was asked for, these never follow: a job that is given back, or lost, ends.
_AGAINST_CANCELLING: Final = frozenset({"retried", "released", "suspended", "parked", "requeued", "claimed"})

#: What any attempt may fail of, by the type of the error or its code: its process was killed, or could not be had, or
#: its owner was lost.
_OF_OTHERS: Final = frozenset({"crashed", "isolation", "lease_expired"})
_STORE: Final = frozenset(f"leftfold.core.errors.{name}" for name in ("StoreError", "StoreUnavailableError"))
#: What each kind of the campaign may fail of beside that, by its own doing.
_OF_ITS_OWN: Final = {"flaky": {"RuntimeError"}, "hog": {"MemoryError"}, "asks": _STORE}
#: Kinds that bring down whatever runs them: no attempt of theirs succeeds.
_HOPELESS: Final = frozenset({"poison", "frail"})
_ENDINGS: Final = frozenset({"succeeded", "cancelled", "dead_lettered"})


def gapless(story: Story) -> Found:
    """Versions are 1, 2, … without gaps, and times never fall."""
    for job, log in story.logs.items():
        if [event.version for event in log] != list(range(1, len(log) + 1)):
            yield job, f"its versions are {[event.version for event in log]}"
        if any(after.at < before.at for before, after in pairwise(log)):
            yield job, "a time on its log is earlier than the one before"


def legal(story: Story) -> Found:
    """Every move is one that the lifecycle has, every note one that there is, said by somebody who may."""
    for job, steps in story.steps.items():
        for event, before, *_ in steps:
            if event.event in NOTES:
                who = NOTES[event.event]
                if before in ENDED and not (before in CLOSED and event.who == "operator"):
                    yield job, f"version {event.version}: {event.event} of the {event.who} on a job that is {before}"
            else:
                _, who = MOVES.get((before, event.event), ("", ()))
            if not who:
                yield job, f"version {event.version}: {event.event} cannot happen to a job that is {before or 'new'}"
            elif event.who not in who:
                yield job, f"version {event.version}: {event.event} is not for the {event.who} to say"


def one_owner(story: Story) -> Found:
    """No job is claimed while an attempt holds it, and no keeper takes it before its lease is over."""
    for job, steps in story.steps.items():
        lease = policy_of(story.logs[job])["lease"]
        for step in steps:
            event = step.event
            if event.event == "claimed" and step.before in LEASED:
                yield job, f"version {event.version}: attempt {step.attempt} has it while the one before it does"
            if event.event == "stalled" and event.who == "keeper":
                if event.at < max(event.data["lease_until"], step.leased_at + lease):
                    yield job, f"version {event.version}: attempt {step.attempt} lost it before its lease was over"
                if event.data["owner"] != step.owner:
                    yield job, f"version {event.version}: it was taken from {event.data['owner']}, who had it not"


def stale(story: Story) -> Found:
    """Nothing that an owner says is accepted once the job is not his: whoever speaks is who claimed it last."""
    for job, steps in story.steps.items():
        for step in steps:
            if step.event.who != "owner":
                continue
            if step.event.actor != step.owner or step.before not in LEASED:
                yield job, f"version {step.event.version}: {step.event.actor} says {step.event.event}, {_held(step)}"
            elif (said := _said_attempt(step.event)) not in {None, step.attempt}:
                yield job, f"version {step.event.version}: attempt {said} says {step.event.event}, {_held(step)}"


def _held(step: Step) -> str:
    return f"attempt {step.attempt} of {step.owner} {'holds' if step.before in LEASED else 'had'} it"


def _said_attempt(event: Event) -> int | None:
    """Give the attempt that the handlers of the campaign put in what they give back, raise, or tell of themselves."""
    result = event.data.get("result")
    if isinstance(result, dict):
        return int(result["attempt"])
    told = event.data.get("message") or (event.data.get("error") or {}).get("message") or ""
    found = re.fullmatch(r"attempt (\d+)", told)
    return int(found[1]) if found else None


def budget(story: Story) -> Found:
    """No attempt begins behind the last failure that the policy allows, and no job is given up as exhausted before."""
    for job, steps in story.steps.items():
        most = policy_of(story.logs[job])["max_failures"]
        for step in steps:
            if step.event.event == "claimed" and step.failures >= most:
                yield job, f"version {step.event.version}: it is claimed after {step.failures} failures of {most}"
            if step.event.data.get("reason_code") == "exhausted_retries" and step.failures < most:
                yield job, f"version {step.event.version}: it is given up after {step.failures} failures of {most}"


def cancelling(story: Story) -> Found:
    """A job that was to be cancelled is not tried again."""
    for job, steps in story.steps.items():
        for step in steps:
            if step.cancelling and step.event.event in _AGAINST_CANCELLING:
                yield job, f"version {step.event.version}: {step.event.event}, although it was to be cancelled"


def one_per_key(story: Story) -> Found:
    """No two live jobs of a kind have one key."""
    lives: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for job, log in story.logs.items():
        spec = spec_of(log)
        if spec.get("key") is not None:
            ends = [event.at for event in log if event.event in ENDED]
            lives[spec["kind"], spec["key"]].append((log[0].at, ends[-1] if ends else 2**63, job))
    for (_, key), spans in lives.items():
        spans.sort()
        for (_, end, first), (begin, _, second) in pairwise(spans):
            if begin + _KEY_SLACK < end:
                yield second, f"it was made while {first} still held the key {key}"


# --- what happens once ------------------------------------------------------------------------------------------------


def one_request(story: Story) -> Found:
    """A request stands on the log of a job once."""
    for job, log in story.logs.items():
        for request, times in Counter(event.request_id for event in log if event.request_id is not None).items():
            if times > 1:
                yield job, f"the request {request} stands on its log {times} times"


def one_answer(story: Story) -> Found:
    """What a job waits for is answered once: by a signal, or by its deadline."""
    for job, log in story.logs.items():
        for key, answers in answers_of(log).items():
            if len(answers) > 1:
                said = " and ".join(f"version {event.version} ({event.event})" for event in answers)
                yield job, f"{key} was answered by {said}"


# --- how it ends ------------------------------------------------------------------------------------------------------


def endings(story: Story) -> Found:
    """A job fails of what its kind fails of, or of what is done to it, and is given up for no other reason."""
    for job, steps in story.steps.items():
        kind = spec_of(story.logs[job]).get("kind", "")
        may_fail = _OF_OTHERS | _OF_ITS_OWN.get(kind, frozenset())
        may_end = _ENDINGS - ({"succeeded"} if kind in _HOPELESS else set())
        for event, _, after, *_ in steps:
            error = event.data.get("error") or {}
            what, reason = error.get("type") or error.get("code"), event.data.get("reason_code")
            if event.event not in NOTES and after in ENDED - may_end:
                yield job, f"version {event.version}: a job of the kind {kind} is {after}"
            if what is not None and what not in may_fail:
                yield job, f"version {event.version}: a job of the kind {kind} fails of {what}"
            if reason not in {None, "exhausted_retries"}:
                yield job, f"version {event.version}: it is set aside for {reason}"


RULES: Final[tuple[Rule, ...]] = (
    gapless, legal, one_owner, stale, budget, cancelling, one_per_key, one_request, one_answer, endings,
)  # fmt: skip
