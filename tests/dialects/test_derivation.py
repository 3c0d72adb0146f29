"""What a stream of names says: the last state event wins; and what a log must never say: a step back."""

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.dialects.histories import CHOICES, found, merged, told, wandered

from leftfold.core import events as e
from leftfold.core.lifecycle import EDGES, Edge
from leftfold.core.record import Record
from leftfold.dialects import DIALECTS
from leftfold.dialects.dialect import Dialect, first_step_back

FOUND = found()


def check_derivation(each: Dialect, log: list[Record]) -> None:
    """Compare, after every record of a log, what the names so far say with where the job is."""
    names: list[str] = []
    for step in each.project(log):
        names += [step.move.event] if step.move.event else []
        assert each.derive_status(names) in merged(each, step.move.target), (each.name, names)


def test_the_stories_of_these_tests_make_every_move_of_the_lifecycle() -> None:
    assert {*FOUND} == {*EDGES}


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("edge", EDGES, ids=str)
def test_after_every_move_the_names_say_where_the_job_is(edge: Edge, name: str) -> None:
    check_derivation(DIALECTS[name], FOUND[edge].log)


@settings(max_examples=200, deadline=None)
@given(CHOICES)
def test_of_any_history_the_names_say_where_the_job_is(choices: list[tuple[int, int]]) -> None:
    log = wandered(choices).log
    for each in DIALECTS.values():
        check_derivation(each, log)


#: Streams that no strict writer would write, and what the seed's derivation makes of them.
STREAMS: list[tuple[str, list[str], str | None]] = [
    ("formal", [], None),
    ("formal", ["plan_generated", "node_started"], None),
    ("formal", ["job_created", "plan_generated"], "Queued"),
    ("formal", ["job_completed", "job_running"], "Running"),
    ("formal", ["job_cancelled", "job_failed", "job_completed"], "Completed"),
    ("formal", ["job_created", "job_queued", "job_running", "job_waiting"], "Waiting"),
    ("formal", ["job_waiting", "wait_completed"], "Queued"),
    ("formal", ["job_running", "job_requeued"], "Queued"),
    ("formal", ["job_leased"], "Running"),
    ("authoritative", [], None),
    ("authoritative", ["job_leased", "tool_invocation_started"], "Leased"),
    ("authoritative", ["job_failed", "job_requeued"], "Queued"),
    ("authoritative", ["job_completed", "job_running", "unheard_of"], "Running"),
    ("reliability", [], None),
    ("reliability", ["job_heartbeat", "job_lease_renewed", "job_compensated"], None),
    ("reliability", ["job_claimed", "job_lease_renewed", "job_heartbeat"], "assigned"),
    ("reliability", ["job_succeeded", "job_started"], "running"),
    ("reliability", ["job_failed", "job_dead_lettered"], "dead_lettered"),
    ("contract", [], None),
    ("contract", ["heartbeat"], None),
    ("contract", ["enqueued", "claimed", "heartbeat"], "claimed"),
    ("contract", ["failed", "enqueued"], "queued"),
    ("quality", [], None),
    ("quality", ["evidence:add"], None),
    ("quality", ["task:create", "run:create", "run:update running"], "inbox"),
    ("quality", ["task:update done", "task:update doing"], "doing"),
]


@pytest.mark.parametrize(("name", "stream", "status"), STREAMS)
def test_in_a_stream_of_any_kind_the_last_known_name_wins(name: str, stream: list[str], status: str | None) -> None:
    assert DIALECTS[name].derive_status(stream) == status


#: Seed 000 §4 and the last column of seed 001's states, where the event is the last one.
DERIVED = {
    "formal": {
        "Queued": {"job_created", "job_queued", "job_requeued", "wait_completed"},
        "Running": {"job_leased", "job_running"},
        "Waiting": {"job_waiting"},
        "Completed": {"job_completed"},
        "Failed": {"job_failed"},
        "Cancelled": {"job_cancelled"},
    },
    "authoritative": {
        "Queued": {"job_created", "job_requeued", "wait_completed"},
        "Leased": {"job_leased"},
        "Running": {"job_running"},
        "Waiting": {"job_waiting"},
        "Completed": {"job_completed"},
        "Failed": {"job_failed"},
        "Cancelled": {"job_cancelled"},
    },
}


@pytest.mark.parametrize("name", DERIVED)
def test_each_name_alone_means_what_the_seed_says(name: str) -> None:
    meant = {event: status for status, events in DERIVED[name].items() for event in events}
    assert {event: DIALECTS[name].derive_status([event]) for event in DIALECTS[name].events} == meant


@pytest.mark.parametrize(
    ("name", "mergers"),
    [
        ("formal", [{"Parked", "Waiting"}, {"Retrying", "Queued"}]),
        ("authoritative", [{"Retrying", "Queued"}]),
        ("reliability", []),
        ("contract", []),
        ("quality", []),
    ],
)
def test_a_dialect_merges_what_its_seed_merges(name: str, mergers: list[set[str]]) -> None:
    assert [set(merger) for merger in DIALECTS[name].mergers] == mergers


@pytest.mark.parametrize("edge", EDGES, ids=str)
def test_no_move_takes_an_attempt_back(edge: Edge) -> None:
    assert first_step_back(FOUND[edge].log) is None


@settings(max_examples=200, deadline=None)
@given(CHOICES)
def test_no_history_takes_an_attempt_back(choices: list[tuple[int, int]]) -> None:
    assert first_step_back(wandered(choices).log) is None


@pytest.mark.parametrize(
    ("acts", "event"),
    [
        (("enqueue held", "claim", "start", "stall"), e.Started()),
        (("enqueue", "claim", "start", "release"), e.Started()),
        (("enqueue", "claim", "start", "fail"), e.Started()),
    ],
    ids=["a stalled attempt runs on", "a released attempt runs on", "a failed attempt runs on"],
)
def test_an_attempt_that_goes_back_is_found_though_the_table_would_refuse_it(
    acts: tuple[str, ...], event: e.AnyEvent
) -> None:
    log = told(*acts).log
    bad = replace(log[-1], version=log[-1].version + 1, event=event)
    assert first_step_back(log) is None
    assert first_step_back([*log, bad]) is bad


def test_a_running_attempt_is_not_claimed_again_under_its_own_number() -> None:
    begun, claimed, started, done = told("enqueue", "claim", "start", "complete").log
    assert first_step_back([begun, claimed, started, replace(claimed, version=4), done]) is None  # a new attempt
    assert first_step_back([begun, claimed, done, started]) is started
