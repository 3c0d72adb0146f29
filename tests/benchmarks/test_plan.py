"""Who is measured when: nobody has a better place than the others, and what is judged comes first."""

from collections import Counter
from itertools import pairwise

from bench.plan import Pace, Step, in_turn, steps
from bench.workloads import FEW, Workload, workloads

SYSTEMS = ["a", "b", "c", "d", "e"]
WORKLOADS = {each.name: each for each in workloads(200_000)}


def test_a_round_has_everybody_once() -> None:
    assert all(sorted(in_turn(SYSTEMS, "drain", number)) == SYSTEMS for number in range(7))


def test_the_second_round_of_a_pair_goes_back_the_same_way() -> None:
    for number in range(0, 6, 2):
        assert in_turn(SYSTEMS, "drain", number)[::-1] == in_turn(SYSTEMS, "drain", number + 1)


def test_the_order_is_the_same_in_every_run_whatever_order_was_asked_for() -> None:
    assert in_turn(SYSTEMS, "drain", 3) == in_turn(SYSTEMS[::-1], "drain", 3)


def test_nobody_always_runs_right_behind_the_same_other_one() -> None:
    behind = Counter(pair for number in range(4) for pair in pairwise(in_turn(list(FEW), "drain", number)))
    assert max(behind.values()) < 4
    assert behind["leftfold_postgres", "pgqueuer"] < 4


def plan(*, whole: bool) -> list[Step]:
    chosen = [WORKLOADS["enqueue"], WORKLOADS["drain"]]
    return steps(chosen, lambda each: each.rounds, lambda each: sorted(each.few), whole=whole)


def test_what_no_target_is_about_comes_once_and_last_in_a_short_run() -> None:
    judged = [step.is_judged for step in plan(whole=False)]
    assert judged == sorted(judged, reverse=True)
    rest = [step for step in plan(whole=False) if not step.is_judged]
    found = {(step.workload.name, step.system) for step in rest}
    assert found >= {("drain", "bare_sqlite"), ("drain", "procrastinate")}
    assert len(rest) == len(found)


def test_what_is_judged_has_all_rounds_in_a_short_run_and_everything_has_them_in_a_whole_one() -> None:
    counted = Counter((step.workload.name, step.system) for step in plan(whole=False) if step.is_judged)
    assert set(counted.values()) == {5}
    assert set(Counter((step.workload.name, step.system) for step in plan(whole=True)).values()) == {5}


def test_a_step_is_expected_to_take_as_long_as_before_or_as_long_as_others_of_its_kind() -> None:
    pace, step = Pace(), plan(whole=True)[0]
    other: Workload = WORKLOADS["latency"]
    assert pace.expect(step) == 0.0
    pace.note(step, 4.0)
    pace.note(step._replace(system="another"), 8.0)
    assert pace.expect(step) == 4.0
    assert pace.expect(step._replace(system="a third")) == 6.0
    assert pace.expect(step._replace(workload=other)) == 6.0
