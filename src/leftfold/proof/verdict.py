"""The proof as a whole: every scope searched, every move of the table taken, every dialect true to its seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from leftfold.core.lifecycle import EDGES
from leftfold.dialects import DIALECTS
from leftfold.proof.parallel import search_all
from leftfold.proof.refinement import problems
from leftfold.proof.search import DEFAULT_SCOPES, Found
from leftfold.proof.world import Scope


class Verdict(NamedTuple):
    """What the proof came to."""

    found: Sequence[Found]
    untaken: Sequence[str]  # moves of the table that no job made
    dialects: Mapping[str, Sequence[str]]  # what is wrong with each dialect

    @property
    def states(self) -> int:
        """Give the number of distinct states, over all scopes."""
        return sum(each.states for each in self.found)

    @property
    def transitions(self) -> int:
        """Give the number of transitions, over all scopes."""
        return sum(each.transitions for each in self.found)

    @property
    def violations(self) -> int:
        """Give how many things are wrong."""
        broken = sum(each.violation is not None for each in self.found)
        return broken + len(self.untaken) + sum(map(len, self.dialects.values()))

    def describe(self) -> dict[str, Any]:
        """Give the verdict as plain data."""
        return {
            "scopes": [
                {
                    **each.scope._asdict(),
                    "states": each.states,
                    "transitions": each.transitions,
                    "seconds": round(each.seconds, 3),
                    "violation": each.violation and each.violation._asdict(),
                }
                for each in self.found
            ],
            "untaken": list(self.untaken),
            "dialects": {name: list(wrong) for name, wrong in self.dialects.items()},
            "states": self.states,
            "transitions": self.transitions,
            "violations": self.violations,
        }


def prove(scope: Scope | None = None, progress: Callable[[Found], None] = lambda _: None) -> Verdict:
    """Search the default scopes, or one of your own, and hold every dialect against what was found.

    The default scopes are large enough to take every move of the table, and the dialects are measured on the moves
    that were taken. A scope of one's own may be too small for that; the dialects are then measured on the table.
    """
    found = search_all([scope] if scope else DEFAULT_SCOPES, progress)
    taken = frozenset(EDGES)
    untaken: list[str] = []
    if scope is None and not any(each.violation for each in found):
        taken = frozenset().union(*(each.edges for each in found))
        untaken = sorted(str(edge) for edge in set(EDGES) - taken)
    return Verdict(found, untaken, {name: list(problems(each, taken)) for name, each in DIALECTS.items()})
