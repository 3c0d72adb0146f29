"""Whole histories in the words of every dialect, spelled out.

A step reads `event state`; `*` marks a name that the seed lacks, `~` an event that the dialect does not tell.
"""

import pytest
from msgspec.structs import replace
from tests.dialects.histories import shown, told

from leftfold.core.errors import CorruptLogError
from leftfold.core.lifecycle import State
from leftfold.dialects import DIALECTS
from leftfold.dialects.dialect import walk

#: The acts of each story, and where the job is in the end.
STORIES: dict[str, tuple[tuple[str, ...], str]] = {
    "done": (("enqueue", "claim", "start", "heartbeat", "note", "complete"), "succeeded"),
    "retried": (("enqueue", "claim", "start", "fail", "claim", "fail", "claim", "start", "complete"), "succeeded"),
    "crashed": (("enqueue", "claim", "start", "stall", "claim", "stall", "claim", "start", "complete"), "succeeded"),
    "held": (("enqueue held", "claim", "start", "stall", "claim by id"), "claimed"),
    "waited": (("enqueue", "claim", "start", "wait", "signal", "claim", "start", "sleep", "expire"), "queued"),
    "parked": (("enqueue", "claim", "start", "park", "signal", "claim", "start", "complete"), "succeeded"),
    "waited first": (("enqueue after", "resume", "claim"), "claimed"),
    "released": (("enqueue", "claim", "release", "requeue"), "queued"),
    "cancelled at rest": (("enqueue", "cancel"), "cancelled"),
    "cancelled at work": (("enqueue", "claim", "start", "cancel", "release"), "cancelled"),
    "dead": (("enqueue once", "claim", "start", "fail", "requeue"), "queued"),
    "failed": (("enqueue strict", "claim", "start", "fail", "requeue"), "queued"),
    "worn out": (("enqueue once", "claim", "start", "stall"), "dead_lettered"),
    "admitted": (("receive", "admit", "claim", "start", "complete"), "succeeded"),
    "turned away": (("receive", "set aside"), "dead_lettered"),
}

SAID: dict[str, dict[str, str]] = {
    "formal": {
        "done": "job_created Queued, job_leased Running, ~ Running, job_completed Completed",
        "retried": "job_created Queued, job_leased Running, ~ Running, job_requeued Retrying, job_leased Running, "
        "job_requeued Retrying, job_leased Running, ~ Running, job_completed Completed",
        "crashed": "job_created Queued, job_leased Running, ~ Running, ~ Running, job_requeued Queued, "
        "job_leased Running, ~ Running, job_requeued Queued, job_leased Running, ~ Running, job_completed Completed",
        "held": "job_created Queued, job_leased Running, ~ Running, ~ Running, job_leased Running",
        "waited": "job_created Queued, job_leased Running, ~ Running, job_waiting Waiting, wait_completed Queued, "
        "job_leased Running, ~ Running, job_waiting Waiting, wait_completed Queued",
        "parked": "job_created Queued, job_leased Running, ~ Running, job_waiting Parked, wait_completed Queued, "
        "job_leased Running, ~ Running, job_completed Completed",
        "waited first": "job_created Queued, job_waiting Waiting, wait_completed Queued, job_leased Running",
        "released": "job_created Queued, job_leased Running, job_requeued Queued, job_requeued Queued",
        "cancelled at rest": "job_created Queued, job_cancelled Cancelled",
        "cancelled at work": "job_created Queued, job_leased Running, ~ Running, job_cancelled Cancelled",
        "dead": "job_created Queued, job_leased Running, ~ Running, job_failed Failed, job_requeued Queued",
        "failed": "job_created Queued, job_leased Running, ~ Running, job_failed Failed, job_requeued Queued",
        "worn out": "job_created Queued, job_leased Running, ~ Running, ~ Running, job_failed Failed",
        "admitted": "job_created Queued, job_queued Queued, job_leased Running, ~ Running, job_completed Completed",
        "turned away": "job_created Queued, job_failed Failed",
    },
    "authoritative": {
        "done": "job_created Queued, job_leased Leased, job_running Running, job_completed Completed",
        "retried": "job_created Queued, job_leased Leased, job_running Running, job_requeued Retrying, "
        "job_leased Leased, job_requeued Retrying, job_leased Leased, job_running Running, job_completed Completed",
        "crashed": "job_created Queued, job_leased Leased, job_running Running, job_stalled* Running, "
        "job_requeued Queued, job_leased Leased, job_stalled* Running, job_requeued Queued, job_leased Leased, "
        "job_running Running, job_completed Completed",
        "held": "job_created Queued, job_leased Leased, job_running Running, job_stalled* Running, job_leased Leased",
        "waited": "job_created Queued, job_leased Leased, job_running Running, job_waiting Waiting, "
        "wait_completed Queued, job_leased Leased, job_running Running, job_waiting Waiting, wait_completed Queued",
        "parked": "job_created Queued, job_leased Leased, job_running Running, job_waiting Waiting, "
        "wait_completed Queued, job_leased Leased, job_running Running, job_completed Completed",
        "waited first": "job_created Queued, job_waiting Waiting, wait_completed Queued, job_leased Leased",
        "released": "job_created Queued, job_leased Leased, job_requeued Queued, job_requeued Queued",
        "cancelled at rest": "job_created Queued, job_cancelled Cancelled",
        "cancelled at work": "job_created Queued, job_leased Leased, job_running Running, job_cancelled Cancelled",
        "dead": "job_created Queued, job_leased Leased, job_running Running, job_failed Failed, job_requeued Queued",
        "failed": "job_created Queued, job_leased Leased, job_running Running, job_failed Failed, job_requeued Queued",
        "worn out": "job_created Queued, job_leased Leased, job_running Running, job_stalled* Running, "
        "job_failed Failed",
        "admitted": "job_created Queued, ~ Queued, job_leased Leased, job_running Running, job_completed Completed",
        "turned away": "job_created Queued, job_failed Failed",
    },
    "reliability": {
        "done": "job_enqueued* queued, job_claimed assigned, job_started running, job_succeeded succeeded",
        "retried": "job_enqueued* queued, job_claimed assigned, job_started running, job_retried* queued, "
        "job_claimed assigned, job_retried* queued, job_claimed assigned, job_started running, job_succeeded succeeded",
        "crashed": "job_enqueued* queued, job_claimed assigned, job_started running, job_orphaned* queued, ~ queued, "
        "job_claimed assigned, job_orphaned* queued, ~ queued, job_claimed assigned, job_started running, "
        "job_succeeded succeeded",
        "held": "job_enqueued* queued, job_claimed assigned, job_started running, job_orphaned* queued, "
        "job_claimed assigned",
        "waited": "job_enqueued* queued, job_claimed assigned, job_started running, job_suspended* queued, ~ queued, "
        "job_claimed assigned, job_started running, job_suspended* queued, ~ queued",
        "parked": "job_enqueued* queued, job_claimed assigned, job_started running, job_suspended* queued, ~ queued, "
        "job_claimed assigned, job_started running, job_succeeded succeeded",
        "waited first": "job_enqueued* queued, ~ queued, ~ queued, job_claimed assigned",
        "released": "job_enqueued* queued, job_claimed assigned, job_released* queued, ~ queued",
        "cancelled at rest": "job_enqueued* queued, job_cancelled cancelled",
        "cancelled at work": "job_enqueued* queued, job_claimed assigned, job_started running, job_cancelled cancelled",
        "dead": "job_enqueued* queued, job_claimed assigned, job_started running, job_dead_lettered dead_lettered, "
        "job_requeued* queued",
        "failed": "job_enqueued* queued, job_claimed assigned, job_started running, job_failed failed, "
        "job_requeued* queued",
        "worn out": "job_enqueued* queued, job_claimed assigned, job_started running, job_orphaned* queued, "
        "job_dead_lettered dead_lettered",
        "admitted": "job_enqueued* queued, ~ queued, job_claimed assigned, job_started running, "
        "job_succeeded succeeded",
        "turned away": "job_enqueued* queued, job_dead_lettered dead_lettered",
    },
    "contract": {
        "done": "enqueued queued, claimed claimed, started running, succeeded succeeded",
        "retried": "enqueued queued, claimed claimed, started running, retried* queued, claimed claimed, "
        "retried* queued, claimed claimed, started running, succeeded succeeded",
        "crashed": "enqueued queued, claimed claimed, started running, stalled stalled, requeued queued, "
        "claimed claimed, stalled stalled, requeued queued, claimed claimed, started running, succeeded succeeded",
        "held": "enqueued queued, claimed claimed, started running, stalled stalled, claimed claimed",
        "waited": "enqueued queued, claimed claimed, started running, suspended* stalled, resumed* queued, "
        "claimed claimed, started running, suspended* stalled, resumed* queued",
        "parked": "enqueued queued, claimed claimed, started running, parked* stalled, resumed* queued, "
        "claimed claimed, started running, succeeded succeeded",
        "waited first": "enqueued queued, suspended* stalled, resumed* queued, claimed claimed",
        "released": "enqueued queued, claimed claimed, released* queued, requeued queued",
        "cancelled at rest": "enqueued queued, cancelled* failed",
        "cancelled at work": "enqueued queued, claimed claimed, started running, cancelled* failed",
        "dead": "enqueued queued, claimed claimed, started running, dead_lettered* failed, requeued queued",
        "failed": "enqueued queued, claimed claimed, started running, failed failed, requeued queued",
        "worn out": "enqueued queued, claimed claimed, started running, stalled stalled, dead_lettered* failed",
        "admitted": "enqueued queued, ~ queued, claimed claimed, started running, succeeded succeeded",
        "turned away": "enqueued queued, dead_lettered* failed",
    },
    # `t:` stands for `task:update`.
    "quality": {
        "done": "t:todo todo, t:doing* doing, ~ doing, t:done done",
        "retried": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:doing* doing, t:blocked blocked, "
        "t:doing* doing, ~ doing, t:done done",
        "crashed": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:todo todo, t:doing* doing, "
        "t:blocked blocked, t:todo todo, t:doing* doing, ~ doing, t:done done",
        "held": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:doing* doing",
        "waited": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:todo todo, t:doing* doing, ~ doing, "
        "t:blocked blocked, t:todo todo",
        "parked": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:todo todo, t:doing* doing, ~ doing, "
        "t:done done",
        "waited first": "t:todo todo, t:blocked blocked, t:todo todo, t:doing* doing",
        "released": "t:todo todo, t:doing* doing, t:todo todo, t:todo todo",
        "cancelled at rest": "t:todo todo, t:cancelled* cancelled",
        "cancelled at work": "t:todo todo, t:doing* doing, ~ doing, t:cancelled* cancelled",
        "dead": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:todo todo",
        "failed": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:todo todo",
        "worn out": "t:todo todo, t:doing* doing, ~ doing, t:blocked blocked, t:blocked blocked",
        "admitted": "task:create inbox, t:todo todo, t:doing* doing, ~ doing, t:done done",
        "turned away": "task:create inbox, t:blocked blocked",
    },
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story_ends_where_it_says(story: str) -> None:
    acts, end = STORIES[story]
    assert told(*acts).state == end


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("name", DIALECTS)
def test_a_story_is_told_in_the_words_of_each_dialect(name: str, story: str) -> None:
    steps = DIALECTS[name].project(told(*STORIES[story][0]).log)
    expected = SAID[name][story].replace("t:", "task:update ")
    assert ", ".join(map(shown, steps)) == expected


@pytest.mark.parametrize("name", DIALECTS)
def test_the_stories_leave_no_step_out_but_the_notes(name: str) -> None:
    log = told(*STORIES["done"][0]).log
    assert [record.event.wire for record in log] == ["enqueued", "claimed", "started", "progress", "succeeded"]
    steps = DIALECTS[name].project(log)
    assert [step.record.version for step in steps] == [1, 2, 3, 5]
    assert [step.move.source for step in steps] == ["(initial)", *(step.move.target for step in steps[:-1])]


RENEWALS = {"formal": None, "authoritative": None, "reliability": "job_lease_renewed", "contract": "heartbeat"}


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
def test_the_renewal_of_a_lease_changes_no_state(name: str, state: State) -> None:
    source, event, target = DIALECTS[name].renewal(state)
    assert source == target == DIALECTS[name].names[state]
    assert event == RENEWALS.get(name)


@pytest.mark.parametrize("name", DIALECTS)
def test_an_empty_log_has_no_steps(name: str) -> None:
    assert DIALECTS[name].project([]) == []


@pytest.mark.parametrize("name", DIALECTS)
def test_a_log_that_breaks_the_table_is_not_projected(name: str) -> None:
    begun, claimed, started, done = told("enqueue", "claim", "start", "complete").log
    with pytest.raises(CorruptLogError, match="'started' is not legal for a job that is succeeded"):
        DIALECTS[name].project([begun, claimed, started, done, replace(started, version=5)])
    with pytest.raises(CorruptLogError, match="'claimed' is not legal for a job that is new"):
        DIALECTS[name].project([claimed, started])


def test_a_walk_gives_the_lawful_beginning_of_a_log_and_then_refuses() -> None:
    begun, claimed, started, done = told("enqueue", "claim", "start", "complete").log
    steps = walk([begun, claimed, done, started])
    assert [str(next(steps)[1]), str(next(steps)[1])] == ["(new) -enqueued-> queued", "queued -claimed-> claimed"]
    with pytest.raises(CorruptLogError, match="'succeeded' is not legal for a job that is claimed"):
        next(steps)
