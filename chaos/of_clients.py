"""What clients were told, against what stands in the store: every job accounted for, and no answer taken back."""

from typing import Final

from chaos.history import op_of, spec_of
from chaos.records import Record
from chaos.story import MAKING, Found, Rule, Story

_ON_THE_LOG: Final = {"cancel": {"cancel_requested", "cancelled"}, "signal": {"signalled", "resumed"}}


def lost(story: Story) -> Found:
    """Every job that a client was told of is in the store, and it is the one that was asked for."""
    for told in story.told:
        if told["verb"] in MAKING and len(told["jobs"]) != (count := len(story.asked[told["op"]]["new"])):
            yield "", f"{told['op']} asked for {count} jobs, and was told of {len(told['jobs'])}"
    for op, new, job in story.made():
        if job not in story.logs:
            yield job, f"{op} was acknowledged, and the job is gone"
            continue
        spec = spec_of(story.logs[job])
        for name in ("kind", "key"):
            if new.get(name) != spec.get(name):
                yield job, f"{op} asked for the {name} {new.get(name)}, the job has {spec.get(name)}"
        if new.get("key") is None and op_of(story.logs[job]) != op:
            yield job, f"{op} was acknowledged, and the job is that of {op_of(story.logs[job])}"


def unexpected(story: Story) -> Found:
    """Every job was asked for, and not refused: only where the outcome is unknown may it be there or not."""
    told, doubtful = {op: job for op, _, job in story.made()}, story.doubtful
    for op, jobs in story.ops.items():
        asked = story.asked.get(op.rpartition(".")[0])
        for job in jobs:
            if asked is None or asked["verb"] not in MAKING:
                yield job, f"nobody asked for {op or 'it'}"
            elif op in told:
                if told[op] != job:
                    yield job, f"whoever asked for {op} was told of {told[op]}"
            elif (last := story.last[asked["op"]])["what"] in {"refused", "failed"} and asked["op"] not in doubtful:
                yield job, f"{op} was {last['what']} ({last.get('code')}), and there is a job"


def twice(story: Story) -> Found:
    """One request makes one job, changes a job once, and once it was answered is answered so however often it is asked.

    Whoever makes jobs gets the very same answer again. Whoever cancels or signals is told where the job stands by now,
    and that nothing was changed.
    """
    for op, jobs in story.ops.items():
        if len(jobs) > 1:
            yield jobs[0], f"{op} is there {len(jobs)} times: {', '.join(jobs)}"
    for op, (first, *later) in story.answers.items():
        for again in later:
            job = _job_of(story, again)
            if again["what"] == "refused":
                yield job, f"{op} was answered before, and is refused now ({again.get('code')})"
            elif any(again.get(each) != first.get(each) for each in ("jobs", "seen")) and again["verb"] in MAKING:
                yield job, f"{op} was answered with {first['seen']} before, and now with {again['seen']}"
            elif again.get("changed"):
                yield job, f"{op} was answered before, and changes the job once more"


def _job_of(story: Story, answer: Record) -> str:
    return str(story.asked[answer["op"]].get("job") or next(iter(answer.get("jobs", ())), ""))


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


def forward(story: Story) -> Found:
    """Versions that one client sees of a job never fall: who makes jobs and asks again is told what he was told."""
    newest: dict[tuple[str, str], int] = {}
    for told in story.told:
        if told["verb"] in MAKING and told is not story.answers[told["op"]][0]:
            continue
        for job, version, _ in told.get("seen", ()):
            before = newest.get((told["by"], job), 0)
            if version < before:
                yield job, f"{told['op']} saw version {version}, and {told['by']} had seen version {before}"
            newest[told["by"], job] = max(version, before)


RULES: Final[tuple[Rule, ...]] = (lost, unexpected, twice, acknowledged, seen, forward)
