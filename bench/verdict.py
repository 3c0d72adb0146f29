"""The targets, and whether a run meets them: ratios of figures of one round, and the median of those of all rounds.

A target is judged only if both sides have a figure in every round that was asked for, and so has everybody whom the
short run measures it against: who is missing, or failed, might have been the best. What is not judged is not met.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bench.measure import Figures
from bench.system import load, names
from bench.workloads import FEW

#: Systems on PostgreSQL that one could use instead of ours.
PEERS: Final = tuple(
    name for name in names() if (about := load(name).ABOUT).server == "postgres" and about.role == "peer"
)


class Measured(NamedTuple):
    """The figures of one system, one workload and one round."""

    system: str
    workload: str
    round: int
    gauge: float  # how long a little work took just before, in milliseconds
    figures: Figures
    failed: str = ""
    disk: float = 0.0  # how long the disk took to keep a page just before, in milliseconds


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

    @property
    def sides(self) -> tuple[tuple[str, str], ...]:
        """Give whom it cannot be judged without, each with the workload: ours, and those of the short run."""
        others = [(each, self.than or self.workload) for each in self.against if each in FEW]
        return ((self.system, self.workload), *others)


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


#: What the targets are about, workload and system: the rest of a run is for information.
JUDGED: Final = frozenset((workload, system) for target in TARGETS for system, workload in target.sides)


class Verdict(NamedTuple):
    """What came of a target."""

    target: Target
    against: str  # the system that it was measured against; none if it could not be
    ratios: tuple[float, ...]  # one per round; none if it could not be judged
    why: str = ""  # it could not

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

        if self.why:
            return "not judged"
        if not holds(target.bound):
            return "missed"
        return "stretch" if target.stretch != target.bound and holds(target.stretch) else "met"

    @property
    def is_met(self) -> bool:
        """Whether it was judged, and holds."""
        return self.word in {"met", "stretch"}


def verdicts(measured: Sequence[Measured], asked: Mapping[str, int]) -> list[Verdict]:
    """Judge every target; `asked` are the rounds of each workload."""
    return [_verdict(measured, target, asked) for target in TARGETS]


def _verdict(measured: Sequence[Measured], target: Target, asked: Mapping[str, int]) -> Verdict:
    for system, workload in target.sides:
        rounds, found = asked.get(workload, 0), len(_rounds(measured, system, workload, target.figure))
        if not found or found < rounds:
            said = f"{system} has figures of {found} of {rounds} rounds of `{workload}`"
            return Verdict(target, "", (), said if rounds else f"`{workload}` was not asked for")
    ours = _rounds(measured, target.system, target.workload, target.figure)
    against = _best(measured, target, len(ours))
    theirs = _rounds(measured, against, target.than or target.workload, target.figure)
    return Verdict(target, against, tuple(ours[number] / theirs[number] for number in sorted(ours)))


def _best(measured: Sequence[Measured], target: Target, rounds: int) -> str:
    """Give the system that is the best by its own median, of those that have all rounds."""
    medians = {
        system: statistics.median(found.values())
        for system in target.against
        if len(found := _rounds(measured, system, target.than or target.workload, target.figure)) >= rounds
    }
    return (max if target.is_rate else min)(medians, key=lambda system: medians[system])


def rounds_of(measured: Iterable[Measured]) -> dict[str, int]:
    """Give how many rounds each workload had, for results that do not say how many were asked for."""
    found: dict[str, int] = {}
    for each in measured:
        found[each.workload] = max(found.get(each.workload, 0), each.round + 1)
    return found


def _rounds(measured: Iterable[Measured], system: str, workload: str, figure: str) -> dict[int, float]:
    return {
        each.round: each.figures[figure]
        for each in measured
        if each.system == system and each.workload == workload and figure in each.figures
    }


def values(measured: Iterable[Measured], system: str, workload: str, figure: str) -> list[float]:
    """Give a figure of all rounds."""
    return list(_rounds(measured, system, workload, figure).values())
