"""Which kinds of jobs may bring down the process that runs them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from leftfold.store.replies import WorkerView
from leftfold.worker.clocks import now

#: So long a kind counts as guilty behind the last death.
_GUILTY_SECONDS: Final = 600.0
_SECOND: Final = 1_000_000


class Suspects:
    """A kind is suspected while a job of it that was lost is tried alone, and guilty for a while if that died.

    Jobs of such kinds run in processes of their own from their first attempt on, so that no other one is lost with
    them. Where a machine went down, many jobs are lost, and all of their kinds are acquitted as soon as they run.
    """

    def __init__(self) -> None:
        self._tried: Counter[str] = Counter()
        self._guilty: dict[str, float] = {}

    def __contains__(self, kind: str) -> bool:
        return self._tried.get(kind, 0) > 0 or (kind in self._guilty and self._guilty[kind] > now())

    def accuse(self, kind: str) -> None:
        """Suspect a kind: a job of it that was lost is tried alone."""
        self._tried[kind] += 1

    def acquit(self, kind: str) -> None:
        """Suspect it no more for that job, which came to an end."""
        self._tried[kind] -= 1

    def convict(self, kind: str) -> None:
        """Call it guilty: a job of it died, and its process with it."""
        self._guilty[kind] = now() + _GUILTY_SECONDS

    def told(self) -> dict[str, float]:
        """Give how long each guilty one stays so, in seconds: for the workers that come after this one."""
        moment = now()
        return {kind: round(until - moment, 1) for kind, until in sorted(self._guilty.items()) if until > moment}

    def learn(self, workers: Iterable[WorkerView]) -> None:
        """Take over what others found out, those that died of it among them."""
        for view in workers:
            told: Any = msgspec.json.decode(view.told)
            for kind, left in dict(told.get("suspects", {})).items():
                until = now() + min(float(left), _GUILTY_SECONDS) - view.age / _SECOND
                self._guilty[kind] = max(until, self._guilty.get(kind, 0.0))
