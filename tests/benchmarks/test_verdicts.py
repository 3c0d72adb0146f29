"""Whether the benchmark judges as it says: ratios of one round, the median of all, and which way is better."""

import pytest
from bench.verdict import TARGETS, Measured, verdicts


def figures(system: str, workload: str, **rounds: list[float]) -> list[Measured]:
    """Give one figure of a system over some rounds."""
    ((figure, values),) = rounds.items()
    return [Measured(system, workload, number, 10.0, {figure: value}) for number, value in enumerate(values)]


def rates(system: str, workload: str, *values: float) -> list[Measured]:
    return figures(system, workload, **{"jobs/s": list(values)})


def test_the_ratio_is_the_median_of_those_of_the_rounds_and_not_that_of_the_medians() -> None:
    measured = rates("leftfold_postgres", "drain", 100, 10, 30) + rates("pgqueuer", "drain", 10, 10, 10)
    (verdict,) = verdicts(measured)
    assert verdict.ratios == (10.0, 1.0, 3.0)
    assert verdict.ratio == 3.0


def test_a_round_that_one_side_failed_in_is_left_out() -> None:
    ours = [
        *rates("leftfold_postgres", "drain", 30, 40),
        Measured("leftfold_postgres", "drain", 2, 1.0, {}, "it broke"),
    ]
    (verdict,) = verdicts(ours + rates("pgqueuer", "drain", 10, 10, 10))
    assert verdict.ratios == (3.0, 4.0)


@pytest.mark.parametrize(
    ("ours", "word"), [(2.0, "stretch"), (1.99, "met"), (1.5, "met"), (1.49, "missed"), (0.1, "missed")]
)
def test_more_is_better_for_rates(ours: float, word: str) -> None:
    (verdict,) = verdicts(rates("leftfold_postgres", "drain", ours) + rates("pgqueuer", "drain", 1.0))
    assert verdict.word == word


@pytest.mark.parametrize(("ours", "word"), [(0.7, "stretch"), (0.71, "met"), (1.0, "met"), (1.01, "missed")])
def test_less_is_better_for_times(ours: float, word: str) -> None:
    measured = figures("leftfold_postgres", "latency", **{"p50 ms": [ours]})
    (verdict,) = verdicts(measured + figures("oban", "latency", **{"p50 ms": [1.0]}))
    assert verdict.word == word


def test_the_best_peer_counts() -> None:
    peers = rates("oban", "enqueue", 50) + rates("pgqueuer", "enqueue", 80) + rates("procrastinate", "enqueue", 20)
    (verdict,) = verdicts(rates("leftfold_postgres", "enqueue", 100) + peers)
    assert (verdict.against, verdict.ratio) == ("pgqueuer", 1.25)


def test_growth_is_judged_against_ourselves() -> None:
    few = figures("leftfold_postgres", "few", **{"jobs/s, waiting": [100.0]})
    many = figures("leftfold_postgres", "many", **{"jobs/s, waiting": [90.0]})
    (verdict,) = verdicts(few + many)
    assert (verdict.against, verdict.ratio, verdict.word) == ("leftfold_postgres", 0.9, "met")


def test_what_was_not_measured_is_not_judged() -> None:
    assert verdicts(rates("leftfold_postgres", "drain", 10)) == []
    assert len(TARGETS) == 10
