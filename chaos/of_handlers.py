"""What handlers recorded, against what stands on the logs: one effect an attempt, and no word that nobody said."""

from collections import defaultdict
from typing import Final

from chaos.history import LEASED, Event, answers_of
from chaos.story import Attempt, Found, Rule, Story

#: Microseconds. Handlers and the store read one clock of one machine; what is rounded, or set right, is no more.
_CLOCK_SLACK: Final = 50_000


def one_effect(story: Story) -> Found:
    """An attempt has one effect at most, none before the time of its start on the log; all attempts share one key."""
    started = {
        (job, step.attempt): step.event.at
        for job, steps in story.steps.items()
        for step in steps
        if step.event.event == "started"
    }
    keys: dict[str, str] = {}
    for (job, attempt), recorded in story.attempts.items():
        if len(recorded.begins) > 1:
            yield job, f"attempt {attempt} had {len(recorded.begins)} effects"
        if (job, attempt) not in started:
            yield job, f"attempt {attempt} had an effect, and was never started"
        elif any(each["wall"] + _CLOCK_SLACK < started[job, attempt] for each in recorded.begins):
            yield job, f"attempt {attempt} had an effect before it was started"
        if any(keys.setdefault(each["key"], job) != job or each["key"] != f"{job}:effect" for each in recorded.begins):
            yield job, f"attempt {attempt} had the idempotency key of another job"


def done(story: Story) -> Found:
    """Whoever succeeded had come to the end of its handler in that attempt."""
    for job, steps in story.steps.items():
        for step in steps:
            ends = story.attempts.get((job, step.attempt), Attempt([], [])).ends
            if step.event.event == "succeeded" and "returned" not in {each["how"] for each in ends}:
                yield job, f"attempt {step.attempt} succeeded, and its handler never returned"


def kept(story: Story) -> Found:
    """Whoever returned, and was not told to stop, has succeeded, unless the job was cancelled or taken from him."""
    outcomes = _outcomes(story)
    for (job, attempt), recorded in story.attempts.items():
        event = outcomes.get((job, attempt))
        if event is None or event.event in {"succeeded", "cancelled", "stalled"}:
            continue
        # A process of its own may be killed between its last line and its word to the worker.
        is_alone = any(each["isolated"] for each in recorded.begins)
        if is_alone and (event.data.get("error") or {}).get("code") == "crashed":
            continue
        if any(each["how"] == "returned" and not each["stopped"] for each in recorded.ends):
            yield job, f"version {event.version}: attempt {attempt} is {event.event}, and its handler had returned"


def alone(story: Story) -> Found:
    """Two handlers of one job run at once only where the first had lost it."""
    outcomes = _outcomes(story)
    latest: dict[str, tuple[int, int]] = {}
    for (job, attempt), recorded in sorted(story.attempts.items()):
        earlier, end = latest.get(job, (0, 0))
        if recorded.begins and recorded.begins[0]["at"] < end:
            yield job, f"attempt {attempt} began while attempt {earlier} was at work, and had not been taken away"
        if recorded.ends and _name(outcomes.get((job, attempt))) != "stalled":
            latest[job] = max(latest.get(job, (0, 0)), (attempt, recorded.ends[-1]["at"]), key=lambda each: each[1])


def heard(story: Story) -> Found:
    """What a handler was told of its wait is what the log says, by then."""
    for told in story.heard:
        job, attempt = told["job"], told["attempt"]
        answers = answers_of(story.logs.get(job, ())).get(told["key"], [])
        attempts = {step.event.version: step.attempt for step in story.steps.get(job, ())}
        said = [(event.data.get("expired", False), event.data.get("payload")) for event in answers
                if attempts[event.version] <= attempt]  # fmt: skip
        if (told["expired"], told.get("answer")) not in said:
            how = "that time was up" if told["expired"] else repr(told.get("answer"))
            yield job, f"attempt {attempt} was told {how} of {told['key']}, and the log says {said or 'nothing'}"


def _outcomes(story: Story) -> dict[tuple[str, int], Event]:
    """Give the event that ended each attempt on the log."""
    return {
        (job, step.attempt): step.event
        for job, steps in story.steps.items()
        for step in steps
        if step.before in LEASED and step.after not in LEASED
    }


def _name(event: Event | None) -> str:
    return event.event if event else ""


RULES: Final[tuple[Rule, ...]] = (one_effect, done, kept, alone, heard)


def late(story: Story) -> int:
    """Count the handlers that came to their end when their job was somebody else's: what fences are for."""
    begun: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (job, attempt), recorded in story.attempts.items():
        begun[job] += [(attempt, each["at"]) for each in recorded.begins]
    return sum(
        any(later > attempt and at < end["at"] for later, at in begun[job])
        for (job, attempt), recorded in story.attempts.items()
        for end in recorded.ends
    )
