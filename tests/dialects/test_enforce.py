"""An enforced dialect: what is nobody's wish but ours is not done, and the next best thing is."""

import pytest
from hypothesis import given, settings
from tests.dialects.histories import CHOICES, Story, found, told, wandered

from leftfold.core.errors import DialectRefusedError
from leftfold.core.lifecycle import EDGES, FINAL, Edge, State
from leftfold.dialects import DIALECTS
from leftfold.dialects.dialect import Basis, Extension, declared

LIVE = "inbox queued retrying claimed running waiting parked stalled"
#: What each seed neither has in its table nor asks for in its prose: event by event, out of which states.
FORBIDDEN = {
    "formal": {
        "received": "(new)", "enqueued": "inbox", "claimed": "stalled", "suspended": "queued",
        "requeued": "dead_lettered", "dead_lettered": LIVE, "cancelled": "inbox queued retrying",
    },
    "authoritative": {
        "received": "(new)", "enqueued": "inbox", "claimed": "stalled", "parked": "running",
        "requeued": "dead_lettered", "dead_lettered": LIVE,
    },
    "reliability": {
        "received": "(new)", "enqueued": "inbox", "suspended": "queued running", "parked": "running",
        "resumed": "waiting parked", "released": "claimed running", "requeued": "retrying failed dead_lettered",
        "failed": "claimed", "dead_lettered": "inbox waiting parked",
    },
    "contract": {
        "received": "(new)", "enqueued": "inbox", "claimed": "retrying", "suspended": "queued running",
        "parked": "running", "resumed": "waiting parked", "retried": "claimed running", "released": "claimed running",
        "requeued": "queued retrying failed dead_lettered", "failed": "claimed stalled", "dead_lettered": LIVE,
        "cancelled": LIVE,
    },
    "quality": {
        "parked": "running", "released": "claimed running", "requeued": "queued dead_lettered",
        "retried": "claimed", "failed": "claimed", "dead_lettered": LIVE,
    },
}  # fmt: skip


def under(name: str, *acts: str) -> Story:
    """Tell a story under an enforced dialect."""
    return Story(DIALECTS[name].forbidden()).tell(*acts)


def answer(story: Story, act: str) -> list[str]:
    """Let one thing more happen, and give the events that it wrote; a refusal by the dialect is an answer too."""
    before = len(story.log)
    try:
        story.tell(act)
    except DialectRefusedError:
        return ["refused"]
    return [record.event.wire for record in story.log[before:]]


@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_ours_is_forbidden_and_what_the_seed_asks_for_is_not(name: str) -> None:
    each = DIALECTS[name]
    declarations = [*declared(each.extensions), *declared(each.run_extensions)]
    ours = {edge for edge, extension in declarations if isinstance(edge, Edge) and extension.basis is Basis.OURS}
    assert each.forbidden() == ours
    assert each.forbidden() < {*EDGES}


@pytest.mark.parametrize("name", DIALECTS)
def test_each_dialect_forbids_what_its_seed_does_not_want_and_nothing_else(name: str) -> None:
    found_out: dict[str, set[str]] = {}
    for edge in DIALECTS[name].forbidden():
        found_out.setdefault(edge.event.wire, set()).add(edge.source or "(new)")
    assert found_out == {event: {*sources.split()} for event, sources in FORBIDDEN[name].items()}


def test_a_renewal_is_never_forbidden() -> None:
    renewal = Extension(None, (State.CLAIMED, State.RUNNING), Basis.OURS, "")
    assert [state for state, _ in declared([renewal])] == [State.CLAIMED, State.RUNNING]
    for name in DIALECTS:
        story = under(name, "enqueue", "claim", "start")
        assert answer(story, "heartbeat") == []
        assert story.job is not None
        assert story.job.renewals == 1


@pytest.mark.parametrize("name", DIALECTS)
def test_a_search_finds_no_forbidden_move_and_every_other_one(name: str) -> None:
    forbidden = DIALECTS[name].forbidden()
    taken = {*found(forbidden)}
    reached = {None, *(edge.target for edge in taken)}
    assert taken == {edge for edge in EDGES if edge not in forbidden and edge.source in reached}


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(choices=CHOICES)
def test_no_history_takes_a_forbidden_move(name: str, choices: list[tuple[int, int]]) -> None:
    forbidden = DIALECTS[name].forbidden()
    assert not set(wandered(choices, forbidden).edges()) & forbidden


@pytest.mark.parametrize("name", DIALECTS)
def test_from_every_state_that_a_job_can_get_into_it_can_still_succeed_or_be_closed(name: str) -> None:
    forbidden = DIALECTS[name].forbidden()
    taken = {*found(forbidden)}
    ends = {edge.target for edge in taken} & (FINAL | {State.FAILED, State.DEAD_LETTERED})
    for start in {edge.target for edge in taken}:
        reached = {start}
        for _ in State:
            reached |= {edge.target for edge in taken if edge.source in reached}
        assert reached & ends, start


STARTED = ("enqueue", "claim", "start")
WORN_OUT = ("enqueue once", "claim", "start")

#: dialect, the story so far, what is asked then, and which events answer it.
ANSWERS: list[tuple[str, tuple[str, ...], str, list[str]]] = [
    # 003: a failed attempt fails the job; no retry, no cancellation, no waiting, no dead letters, no inbox.
    ("contract", STARTED, "fail", ["failed"]),
    ("contract", STARTED, "fail for good", ["failed"]),
    ("contract", WORN_OUT, "fail", ["failed"]),
    ("contract", ("enqueue", "claim"), "fail", ["refused"]),
    ("contract", STARTED, "give up", ["refused"]),
    ("contract", STARTED, "set aside", ["refused"]),
    ("contract", ("enqueue",), "cancel", ["refused"]),
    ("contract", STARTED, "cancel", ["refused"]),
    ("contract", STARTED, "kill", ["refused"]),
    ("contract", STARTED, "heed", ["refused"]),
    ("contract", STARTED, "wait", ["refused"]),
    ("contract", STARTED, "park", ["refused"]),
    ("contract", STARTED, "sleep", ["refused"]),
    ("contract", STARTED, "release", ["refused"]),
    ("contract", STARTED, "stall", ["stalled", "requeued"]),
    ("contract", WORN_OUT, "stall", ["stalled"]),
    ("contract", (*WORN_OUT, "stall"), "bring back", ["refused"]),
    ("contract", (*WORN_OUT, "stall"), "requeue", ["requeued"]),
    ("contract", (*WORN_OUT, "stall"), "claim by id", ["claimed"]),
    ("contract", ("enqueue",), "requeue", ["refused"]),
    ("contract", (*STARTED, "fail"), "requeue", ["refused"]),
    ("contract", STARTED, "complete", ["succeeded"]),
    ("contract", (), "receive", ["refused"]),
    ("contract", (), "enqueue after", ["refused"]),
    # 004: parked is ours, waiting is not; a job ends as failed, which a task calls blocked, and is never given back.
    ("quality", STARTED, "park", ["suspended"]),
    ("quality", STARTED, "wait", ["suspended"]),
    ("quality", STARTED, "fail", ["retried"]),
    ("quality", WORN_OUT, "fail", ["failed"]),
    ("quality", WORN_OUT, "stall", ["stalled", "failed"]),
    ("quality", ("enqueue", "claim"), "fail", ["refused"]),
    ("quality", STARTED, "release", ["refused"]),
    ("quality", STARTED, "give up", ["refused"]),
    ("quality", (*WORN_OUT, "fail"), "requeue", ["requeued"]),
    ("quality", ("receive",), "admit", ["enqueued"]),
    ("quality", ("receive",), "cancel", ["cancelled"]),
    ("quality", ("enqueue",), "cancel", ["cancelled"]),
    # 001: one waiting state, one failed state.
    ("authoritative", STARTED, "park", ["suspended"]),
    ("authoritative", STARTED, "wait", ["suspended"]),
    ("authoritative", ("enqueue after",), "resume", ["resumed"]),
    ("authoritative", STARTED, "fail", ["retried"]),
    ("authoritative", WORN_OUT, "fail", ["failed"]),
    ("authoritative", WORN_OUT, "stall", ["stalled", "failed"]),
    ("authoritative", STARTED, "release", ["released"]),
    ("authoritative", STARTED, "set aside", ["refused"]),
    ("authoritative", ("enqueue",), "cancel", ["cancelled"]),
    ("authoritative", (), "receive", ["refused"]),
    # 000: §3 cancels what runs or waits, and nothing that is queued.
    ("formal", ("enqueue",), "cancel", ["refused"]),
    ("formal", ("enqueue",), "kill", ["refused"]),
    ("formal", (*STARTED, "fail"), "cancel", ["refused"]),
    ("formal", STARTED, "kill", ["cancelled"]),
    ("formal", STARTED, "cancel", ["cancel_requested"]),
    ("formal", (*STARTED, "cancel"), "heed", ["cancelled"]),
    ("formal", (*STARTED, "cancel"), "stall", ["stalled", "cancelled"]),
    ("formal", (*STARTED, "wait"), "cancel", ["cancelled"]),
    ("formal", STARTED, "park", ["parked"]),
    ("formal", (*STARTED, "park"), "cancel", ["cancelled"]),
    ("formal", STARTED, "fail", ["retried"]),
    ("formal", WORN_OUT, "fail", ["failed"]),
    ("formal", WORN_OUT, "stall", ["stalled", "failed"]),
    ("formal", (*WORN_OUT, "fail"), "requeue", ["requeued"]),
    ("formal", STARTED, "give up", ["refused"]),
    ("formal", (), "enqueue after", ["refused"]),
    # 002: no waiting, but dead letters; what it closed stays closed.
    ("reliability", STARTED, "park", ["refused"]),
    ("reliability", STARTED, "wait", ["refused"]),
    ("reliability", STARTED, "release", ["refused"]),
    ("reliability", STARTED, "fail", ["retried"]),
    ("reliability", WORN_OUT, "fail", ["dead_lettered"]),
    ("reliability", WORN_OUT, "stall", ["stalled", "dead_lettered"]),
    ("reliability", ("enqueue strict", "claim", "start"), "stall", ["stalled", "failed"]),
    ("reliability", (*WORN_OUT, "fail"), "requeue", ["refused"]),
    ("reliability", ("enqueue",), "cancel", ["cancelled"]),
    ("reliability", ("enqueue",), "set aside", ["dead_lettered"]),
    ("reliability", ("enqueue strict", "claim"), "fail", ["dead_lettered"]),
]


@pytest.mark.parametrize(("name", "acts", "act", "events"), ANSWERS, ids=str)
def test_an_enforced_dialect_picks_the_next_allowed_event(
    name: str, acts: tuple[str, ...], act: str, events: list[str]
) -> None:
    assert answer(under(name, *acts), act) == events


def test_an_exhausted_stall_under_contract_stays_stalled_and_is_charged() -> None:
    story = under("contract", *WORN_OUT, "stall")
    assert story.job is not None
    assert (story.job.state, story.job.failures, story.job.lease) == (State.STALLED, 1, None)


def test_a_refusal_names_the_move_that_the_dialect_lacks_and_changes_nothing() -> None:
    story = under("contract", *STARTED)
    before = story.job, len(story.log)
    with pytest.raises(DialectRefusedError, match="has no running -cancelled-> cancelled"):
        story.tell("kill")
    assert (story.job, len(story.log)) == before


def test_of_several_refused_answers_the_best_one_is_named() -> None:
    with pytest.raises(DialectRefusedError, match="has no claimed -retried-> retrying"):
        under("contract", "enqueue", "claim", "fail")


@pytest.mark.parametrize("name", DIALECTS)
def test_without_enforcement_every_one_of_these_commands_is_accepted(name: str) -> None:
    refused = [(acts, act) for each, acts, act, events in ANSWERS if each == name and events == ["refused"]]
    assert refused
    for acts, act in refused:
        if "stall" not in acts:  # there the job took another way before
            assert told(*acts).attempt(act), (acts, act)
