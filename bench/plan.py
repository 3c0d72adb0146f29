"""Who is measured when: rounds, the order within each, how long it will take, and what is left out if that is too long.

The systems take turns in an order of its own for each workload and each pair of rounds, and the second round of a pair
goes back the same way: so nobody always comes first, or right behind the same other one. A run that is to end soon
measures what the targets are about in all rounds; then the rest, once, for as long as there is time.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.verdict import JUDGED
from bench.workloads import Workload


class Step(NamedTuple):
    """One figure to take."""

    workload: Workload
    round: int
    system: str

    @property
    def is_judged(self) -> bool:
        """Whether a target is about it."""
        return (self.workload.name, self.system) in JUDGED


def in_turn(systems: Sequence[str], workload: str, number: int) -> list[str]:
    """Give them in another order each round, the same ones in every run."""
    order = sorted(systems)
    random.Random(f"{workload} {number // 2}").shuffle(order)  # noqa: S311 - an order, and no secret
    return order if number % 2 == 0 else order[::-1]


def steps(
    workloads: Sequence[Workload],
    rounds: Callable[[Workload], int],
    systems: Callable[[Workload], list[str]],
    *,
    whole: bool,
) -> list[Step]:
    """Give what is to be measured, round by round; what no target is about only once and at the end, unless `whole`."""
    every = [
        Step(workload, number, name)
        for number in range(max(map(rounds, workloads), default=0))
        for workload in workloads
        if number < rounds(workload)
        for name in in_turn(systems(workload), workload.name, number)
    ]
    if whole:
        return every
    return [step for step in every if step.is_judged] + [s for s in every if not s.is_judged and s.round == 0]


class Pace:
    """How long steps take: as long as they did before, else as long as others of their workload, or as any did."""

    def __init__(self) -> None:
        self._took: dict[tuple[str, ...], list[float]] = {}

    def note(self, step: Step, seconds: float) -> None:
        """Remember how long one took."""
        for key in self._keys(step):
            self._took.setdefault(key, []).append(seconds)

    def expect(self, step: Step) -> float:
        """Give how long one will take, in seconds; nothing as long as nothing is known."""
        known = next((self._took[key] for key in self._keys(step) if key in self._took), [0.0])
        return statistics.fmean(known)

    @staticmethod
    def _keys(step: Step) -> tuple[tuple[str, ...], ...]:
        return (step.workload.name, step.system), (step.workload.name,), ()
