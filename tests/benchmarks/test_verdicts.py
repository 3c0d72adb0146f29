"""Whether the benchmark judges as it says: ratios of one round, the median of all, and which way is better."""

import pytest
from bench import store
from bench.verdict import JUDGED, PEERS, TARGETS, Measured, Target, Verdict, rounds_of, verdicts


def figures(system: str, workload: str, **rounds: list[float]) -> list[Measured]:
    """Give one figure of a system over some rounds."""
    ((figure, values),) = rounds.items()
    return [Measured(system, workload, number, 10.0, {figure: value}) for number, value in enumerate(values)]


def rates(system: str, workload: str, *values: float) -> list[Measured]:
    return figures(system, workload, **{"jobs/s": list(values)})


def judged(measured: list[Measured]) -> list[Verdict]:
    """Give the verdicts on what could be judged."""
    return [each for each in verdicts(measured, rounds_of(measured)) if not each.why]


def unjudged(measured: list[Measured], workload: str, rounds: int = 0) -> list[str]:
    """Give why the targets of a workload could not be judged."""
    asked = {workload: rounds} if rounds else rounds_of(measured)
    return [each.why for each in verdicts(measured, asked) if each.why and each.target.workload == workload]


def test_the_ratio_is_the_median_of_those_of_the_rounds_and_not_that_of_the_medians() -> None:
    measured = rates("leftfold_postgres", "drain", 100, 10, 30) + rates("pgqueuer", "drain", 10, 10, 10)
    (verdict,) = judged(measured)
    assert verdict.ratios == (10.0, 1.0, 3.0)
    assert verdict.ratio == 3.0


@pytest.mark.parametrize(
    ("ours", "word"), [(2.0, "stretch"), (1.99, "met"), (1.5, "met"), (1.49, "missed"), (0.1, "missed")]
)
def test_more_is_better_for_rates(ours: float, word: str) -> None:
    (verdict,) = judged(rates("leftfold_postgres", "drain", ours) + rates("pgqueuer", "drain", 1.0))
    assert verdict.word == word


@pytest.mark.parametrize(("ours", "word"), [(0.7, "stretch"), (0.71, "met"), (1.0, "met"), (1.01, "missed")])
def test_less_is_better_for_times(ours: float, word: str) -> None:
    peers = [
        each for name in ("oban", "pgqueuer", "procrastinate") for each in figures(name, "latency", **{"p50 ms": [1.0]})
    ]
    (verdict,) = judged(figures("leftfold_postgres", "latency", **{"p50 ms": [ours]}) + peers)
    assert verdict.word == word


def test_the_best_peer_counts() -> None:
    peers = rates("oban", "enqueue", 50) + rates("pgqueuer", "enqueue", 80) + rates("procrastinate", "enqueue", 20)
    (verdict,) = judged(rates("leftfold_postgres", "enqueue", 100) + peers)
    assert (verdict.against, verdict.ratio) == ("pgqueuer", 1.25)


def test_growth_is_judged_against_ourselves() -> None:
    few = figures("leftfold_postgres", "few", **{"jobs/s, waiting": [100.0]})
    many = figures("leftfold_postgres", "many", **{"jobs/s, waiting": [90.0]})
    (verdict,) = judged(few + many)
    assert (verdict.against, verdict.ratio, verdict.word) == ("leftfold_postgres", 0.9, "met")


def test_what_was_not_measured_is_not_judged() -> None:
    found = verdicts(rates("leftfold_postgres", "drain", 10), {"drain": 1})
    assert [each.word for each in found] == ["not judged"] * 10
    assert not any(each.is_met for each in found)
    assert len(TARGETS) == 10


@pytest.mark.parametrize("failing", ["leftfold_postgres", "pgqueuer"])
def test_a_round_that_one_side_failed_in_leaves_the_target_unjudged(failing: str) -> None:
    measured = rates("leftfold_postgres", "bulk", 30, 40, 50) + rates("pgqueuer", "bulk", 10, 10, 10)
    kept = [each for each in measured if (each.system, each.round) != (failing, 1)]
    failed = [*kept, Measured(failing, "bulk", 1, 1.0, {}, "it broke")]
    assert unjudged(failed, "bulk") == [f"{failing} has figures of 2 of 3 rounds of `bulk`"]


def test_a_peer_of_the_short_run_that_is_missing_leaves_the_target_unjudged_though_others_are_there() -> None:
    measured = [
        each for system in ("leftfold_postgres", "pgqueuer", "procrastinate") for each in rates(system, "enqueue", 9)
    ]
    assert unjudged(measured, "enqueue") == ["oban has figures of 0 of 1 rounds of `enqueue`"]


def test_fewer_rounds_than_were_asked_for_are_not_enough() -> None:
    measured = rates("leftfold_postgres", "bulk", 30, 40) + rates("pgqueuer", "bulk", 10, 10)
    assert unjudged(measured, "bulk", rounds=5) == ["leftfold_postgres has figures of 2 of 5 rounds of `bulk`"]


def test_a_peer_of_the_long_run_with_a_lucky_round_is_not_the_best_one() -> None:
    required = [each for name in ("oban", "pgqueuer", "procrastinate") for each in rates(name, "enqueue", 50, 50)]
    measured = rates("leftfold_postgres", "enqueue", 100, 100) + required + rates("chancy", "enqueue", 500)
    (verdict,) = judged(measured)
    assert verdict.ratio == 2.0


def test_the_peers_are_all_that_have_postgresql_and_could_be_used_instead() -> None:
    assert set(PEERS) >= {"pgqueuer", "procrastinate", "oban", "chancy", "dbos", "saq_postgres"}
    assert not {"bare_postgres", "leftfold_postgres", "huey_sqlite", "saq_redis", "pgmq"} & set(PEERS)


def test_a_target_without_a_stretch_of_its_own_is_met_and_no_more() -> None:
    plain = Target("p99", "leftfold_postgres", "latency", "p99 ms", ("oban",), 1.0, 1.0)
    assert Verdict(plain, "oban", (0.5,)).word == "met"


def test_what_is_judged_is_known_beforehand() -> None:
    assert {("enqueue", "oban"), ("few", "leftfold_postgres"), ("drain", "huey_sqlite")} <= JUDGED
    assert ("drain", "procrastinate") not in JUDGED


def test_the_stores_alone_are_judged_as_well_and_what_falls_short_is_named() -> None:
    ratios = {"enqueue": {"ratio": 0.79}, "enqueue_many": {"ratio": 0.61}}
    results = {"sqlite": {"ratios": ratios, "bytes": {"as they come": 501.0, "all enqueued first": 900.0}}}
    assert store.missed(results) == [
        "sqlite, enqueue is 0.79, asked 0.80",
        "sqlite, bytes per finished job are 501, asked 500",
    ]
    assert store.missed({"postgres": {"ratios": {"enqueue": {"ratio": 0.8}}, "bytes": {}}}) == []
