"""What must be true of everything that processes recorded and of everything that stands on the logs.

Pure: records and logs in, violations out. A rule is a function that yields what breaks it; its first line says it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from chaos.history import ENDED, LEASED, MOVES, TRANSITIONS, Event, Step, policy_of, spec_of
from chaos.story import MAKING, Attempt, Row, Story

#: A new holder of a key may wait for the end of the old one inside of its statement, whose time is that of its begin.
_KEY_SLACK: Final = 2_000_000
#: Once a cancellation was asked for, these never follow: a job that is given back, or lost, ends.
_AGAINST_CANCELLING: Final = frozenset({"retried", "released", "suspended", "parked", "requeued", "claimed"})
_ON_THE_LOG: Final = {"cancel": {"cancel_requested", "cancelled"}, "signal": {"signalled", "resumed"}}


class Violation(NamedTuple):
    """A rule that was broken, by which job, and how."""

    rule: str
    job: str
    detail: str


Found = Iterator[tuple[str, str]]

# --- jobs accounted for -----------------------------------------------------------------------------------------------


def lost(story: Story) -> Found:
    """Every job that a client was told of is in the store, with the key that was asked for."""
    for op, new, job in story.made():
        if job not in story.logs:
            yield job, f"{op} was acknowledged, and the job is gone"
        elif new.get("key") != spec_of(story.logs[job]).get("key"):
            yield job, f"{op} asked for the key {new.get('key')}, the job has another one"


def unexpected(story: Story) -> Found:
    """Every job was asked for, and not refused: only where the outcome is unknown may it be there or not."""
    told, doubtful = {op: job for op, _, job in story.made()}, story.doubtful
    for op, jobs in story.ops.items():
        asked = story.asked.get(op.rpartition(".")[0])
        for job in jobs:
            if asked is None or asked["verb"] not in MAKING:
                yield job, f"nobody asked for {op or 'it'}"
            elif (last := story.last[asked["op"]])["what"] in {"refused", "failed"} and asked["op"] not in doubtful:
                yield job, f"{op} was {last['what']} ({last.get('code')}), and there is a job"
            elif told.get(op, job) != job:
                yield job, f"whoever asked for {op} was told of {told[op]}"


def twice(story: Story) -> Found:
    """One request makes one job, and gives one answer however often it is asked."""
    for op, jobs in story.ops.items():
        if len(jobs) > 1:
            yield jobs[0], f"{op} is there {len(jobs)} times: {', '.join(jobs)}"
    answers: dict[str, str] = {}
    for op, _, job in story.made():
        if answers.setdefault(op, job) != job:
            yield job, f"{op} was answered with {answers[op]} before"


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


# --- the log of each job ----------------------------------------------------------------------------------------------


def gapless(story: Story) -> Found:
    """Versions are 1, 2, … without gaps, and times never fall."""
    for job, log in story.logs.items():
        if [event.version for event in log] != list(range(1, len(log) + 1)):
            yield job, f"its versions are {[event.version for event in log]}"
        if any(after.at < before.at for before, after in pairwise(log)):
            yield job, "a time on its log is earlier than the one before"


def legal(story: Story) -> Found:
    """Every move is one that the lifecycle has, said by somebody who may."""
    for job, steps in story.steps.items():
        for event, before, *_ in steps:
            if event.event not in TRANSITIONS:
                continue
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


# --- effects ----------------------------------------------------------------------------------------------------------


def one_effect(story: Story) -> Found:
    """An attempt has one effect at most, and only one that the log has as started; all attempts share one key."""
    started = {
        (job, step.attempt) for job, steps in story.steps.items() for step in steps if step.event.event == "started"
    }
    keys: dict[str, str] = {}
    for (job, attempt), recorded in story.attempts.items():
        if len(recorded.begins) > 1:
            yield job, f"attempt {attempt} had {len(recorded.begins)} effects"
        if (job, attempt) not in started:
            yield job, f"attempt {attempt} had an effect, and was never started"
        if any(keys.setdefault(each["key"], job) != job or each["key"] != f"{job}:effect" for each in recorded.begins):
            yield job, f"attempt {attempt} had the idempotency key of another job"


def done(story: Story) -> Found:
    """Whoever succeeded had come to the end of its handler in that attempt."""
    for job, steps in story.steps.items():
        for step in steps:
            ends = story.attempts.get((job, step.attempt), Attempt([], [])).ends
            if step.event.event == "succeeded" and "returned" not in {each["how"] for each in ends}:
                yield job, f"attempt {step.attempt} succeeded, and its handler never returned"


def alone(story: Story) -> Found:
    """Two handlers of one job run at once only where the first had lost it."""
    outcomes = {
        (job, step.attempt): step.event.event
        for job, steps in story.steps.items()
        for step in steps
        if step.before in LEASED and step.after not in LEASED
    }
    latest: dict[str, tuple[int, int]] = {}
    for (job, attempt), recorded in sorted(story.attempts.items()):
        earlier, end = latest.get(job, (0, 0))
        if recorded.begins and recorded.begins[0]["at"] < end:
            yield job, f"attempt {attempt} began while attempt {earlier} was at work, and had not been taken away"
        if recorded.ends and outcomes.get((job, attempt)) != "stalled":
            latest[job] = max(latest.get(job, (0, 0)), (attempt, recorded.ends[-1]["at"]), key=lambda each: each[1])


# --- what clients were told -------------------------------------------------------------------------------------------


def acknowledged(story: Story) -> Found:
    """What a client was told stands on the log: a cancellation, a signal, under the very request."""
    for told in story.told:
        words = _ON_THE_LOG.get(told["verb"])
        if words is None:
            continue
        job = story.asked[told["op"]]["job"]
        found = [event for event in story.logs.get(job, ()) if event.event in words]
        if told["changed"]:
            found = [event for event in found if event.request_id == told["op"]]
        if not found:
            yield job, f"{told['op']} was acknowledged, and there is no {told['verb']} of it on the log"
        elif story.asked[told["op"]].get("mode") == "hard" and told["seen"][0][2] != "cancelled":
            yield job, f"{told['op']} was to cancel it at once, and it was told to be {told['seen'][0][2]}"


def seen(story: Story) -> Found:
    """What a client saw of a job is what the log says of that version: nothing that was shown is taken back."""
    for told in story.told:
        for job, version, state in told.get("seen", ()):
            steps = story.steps.get(job, [])
            if version > len(steps) or steps[version - 1].after != state:
                yield job, f"{told['op']} saw it {state} at version {version}, which the log does not have"


# --- in the end -------------------------------------------------------------------------------------------------------


def ended(story: Story) -> Found:
    """When everything is healed, every job comes to its end."""
    for job, steps in story.steps.items():
        if steps and steps[-1].after not in ENDED:
            yield job, f"it is still {steps[-1].after}, attempt {steps[-1].attempt}"


def row(story: Story) -> Found:
    """The row of a job is what its log comes to, counted by us."""
    for job in {**story.rows, **story.logs}:
        steps = story.steps.get(job)
        ours = Row(steps[-1].after, len(steps), steps[-1].attempt, steps[-1].failures) if steps else None
        if story.rows.get(job) != ours:
            yield job, f"its row is {story.rows.get(job)}, its log comes to {ours}"


def verified(story: Story) -> Found:
    """`verify` finds nothing, nobody of us crashed, and all workers leave when they are asked to."""
    for finding in story.findings:
        yield "", finding


RULES: Final[tuple[Callable[[Story], Found], ...]] = (
    lost, unexpected, twice, one_per_key, gapless, legal, one_owner, stale, budget, cancelling, one_effect, done, alone,
    acknowledged, seen, ended, row, verified,
)  # fmt: skip


def violations(story: Story) -> list[Violation]:
    """Hold everything to every rule."""
    return [Violation(rule.__name__, job, detail) for rule in RULES for job, detail in rule(story)]


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
