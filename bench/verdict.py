"""The targets, and whether a run meets them: ratios of figures of one round, and the median of those of all rounds."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bench.measure import Figures

#: Systems on PostgreSQL that one could use instead of ours.
PEERS: Final = ("pgqueuer", "procrastinate", "oban", "chancy", "dbos", "saq_postgres")


class Measured(NamedTuple):
    """The figures of one system, one workload and one round."""

    system: str
    workload: str
    round: int
    gauge: float  # how long a little work took just before, in milliseconds
    figures: Figures
    failed: str = ""


class Target(NamedTuple):
    """What is asked of us: a ratio of one of our figures to that of somebody else, or to another one of our own."""

    title: str
    system: str
    workload: str
    figure: str
    against: tuple[str, ...]  # the best of these counts
    bound: float
    stretch: float
    than: str | None = None  # the workload of the other side, if it is another one

    @property
    def is_rate(self) -> bool:
        """Whether more is better: then the bound is the least that will do, else the most."""
        return self.figure.startswith("jobs/s")


_POSTGRES, _SQLITE = "leftfold_postgres", "leftfold_sqlite"
TARGETS: Final = (
    Target("drain, one process, PostgreSQL", _POSTGRES, "drain", "jobs/s", ("pgqueuer",), 1.5, 2.0),
    Target("drain, two processes, PostgreSQL", _POSTGRES, "drain2", "jobs/s", ("pgqueuer",), 1.3, 1.7),
    Target("drain, one process, PostgreSQL", _POSTGRES, "drain", "jobs/s", ("bare_postgres",), 0.55, 0.70),
    Target("bulk enqueue, PostgreSQL", _POSTGRES, "bulk", "jobs/s", ("pgqueuer",), 1.3, 1.6),
    Target("one-by-one enqueue, PostgreSQL", _POSTGRES, "enqueue", "jobs/s", PEERS, 1.2, 1.5),
    Target("pick-up p50, PostgreSQL", _POSTGRES, "latency", "p50 ms", PEERS, 1.0, 0.7),
    Target("pick-up p99, PostgreSQL", _POSTGRES, "latency", "p99 ms", PEERS, 1.0, 1.0),
    Target("drain, SQLite", _SQLITE, "drain", "jobs/s", ("huey_sqlite",), 8.0, 15.0),
    Target("drain, many waiting, PostgreSQL", _POSTGRES, "many", "jobs/s, waiting", (_POSTGRES,), 0.85, 0.95, "few"),
    Target("worker memory after 100,000 jobs", _POSTGRES, "memory", "worker MB", ("pgqueuer",), 1.2, 1.0),
)  # fmt: skip


class Verdict(NamedTuple):
    """What came of a target."""

    target: Target
    against: str  # the system that it was measured against
    ratios: tuple[float, ...]  # one per round

    @property
    def ratio(self) -> float:
        """Give the median."""
        return statistics.median(self.ratios)

    @property
    def word(self) -> str:
        """Say it in a word."""
        target = self.target

        def holds(bound: float) -> bool:
            return self.ratio >= bound if target.is_rate else self.ratio <= bound

        return "stretch" if holds(target.stretch) else "met" if holds(target.bound) else "missed"


def verdicts(measured: Sequence[Measured]) -> list[Verdict]:
    """Judge every target of which both sides were measured."""
    found = []
    for target in TARGETS:
        against = _best(measured, target)
        if against is None:
            continue
        ours = _rounds(measured, target.system, target.workload, target.figure)
        theirs = _rounds(measured, against, target.than or target.workload, target.figure)
        ratios = tuple(ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys()))
        if ratios:
            found.append(Verdict(target, against, ratios))
    return found


def _best(measured: Iterable[Measured], target: Target) -> str | None:
    """Give the system that is the best by its own median."""
    medians = {
        system: statistics.median(rounds.values())
        for system in target.against
        if (rounds := _rounds(measured, system, target.than or target.workload, target.figure))
    }
    pick = max if target.is_rate else min
    return pick(medians, key=lambda system: medians[system]) if medians else None


def _rounds(measured: Iterable[Measured], system: str, workload: str, figure: str) -> dict[int, float]:
    return {
        each.round: each.figures[figure]
        for each in measured
        if each.system == system and each.workload == workload and figure in each.figures
    }


def median(measured: Iterable[Measured], system: str, workload: str, figure: str) -> float | None:
    """Give a figure over all rounds."""
    found = _rounds(measured, system, workload, figure)
    return statistics.median(found.values()) if found else None
