# Rendered from leftfold/engine by `make render`: change that one.
"""How operations are run: the part of the engine that every command uses."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, Self, TypeVar

from leftfold import asking
from leftfold.core import commands as c
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden
from leftfold.core.errors import LeftfoldError, StoreError
from leftfold.core.lifecycle import CLAIMABLE
from leftfold.store import ops
from leftfold.store.claiming import Trail
from leftfold.store.ids import Ids
from leftfold.store.ops import Ask, Outcome
from leftfold.store.query import Operation, Query, Steps
from leftfold.store.replies import Receipt
from leftfold.store.sessions import AsyncSession, Bell

P = ParamSpec("P")
T = TypeVar("T")

#: How many writes pass between two foldings of the counters.
_FOLD_EVERY = 500
_FOLD_ROWS = 20_000


class Running:
    """A store, opened. `actor` is the name under which its calls stand on the log."""

    def __init__(
        self,
        store: AsyncSession,
        *,
        actor: str = "client",
        ids: Ids | None = None,
        forbidden: Forbidden = NOTHING_FORBIDDEN,
        bell: Bell | None = None,
    ) -> None:
        self.store = store
        self.actor = actor
        self._ids = ids or Ids()
        self._forbidden = forbidden
        self._trail = Trail()
        self._bell = bell
        self._is_to_fold = False
        self._writes = secrets.randbelow(_FOLD_EVERY)  # so that processes that write once each fold, too

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store."""
        if self._bell:
            self._bell.close()
        await self.store.close()

    async def _tell(self, job_id: str, command: c.AnyCommand) -> Receipt:
        asks = [Ask(asking.id_of(job_id), command)]
        receipt = self._only(await self._write(Operation(lambda: ops.carry_out(asks, self._forbidden))))
        if self._bell and receipt.state in CLAIMABLE:
            self._bell.ring()
        return receipt

    async def _tell_many(self, asks: list[Ask]) -> list[Outcome]:
        return await self._many(Operation(lambda: ops.carry_out(asks, self._forbidden)), asks) if asks else []

    async def _own(self, asks: list[Ask]) -> list[Outcome]:
        """Do what can be done by the short statement, then decide the rest."""
        return [outcome for outcome in await self._own_all(asks, quietly=False) if outcome is not None]

    async def _own_all(self, asks: list[Ask], *, quietly: bool) -> list[Outcome | None]:
        """Do the same, `quietly` without receipts: None stands for each."""
        asking.check_batch(asks)
        done: dict[int, Receipt | None] = {}
        if any(ops.is_quick(ask) for ask in asks):
            done = await self._write(Operation(lambda: ops.quickly(asks, self._forbidden, quietly=quietly), apart=True))
        if len(done) == len(asks):
            return [done[place] for place in range(len(asks))]
        rest = [place for place in range(len(asks)) if place not in done]
        found: dict[int, Outcome | None] = {**done}
        if rest:
            others = [asks[place] for place in rest]
            outcomes: list[Outcome]
            try:
                outcomes = await self._write(Operation(lambda: ops.carry_out(others, self._forbidden)))
            except StoreError as problem:
                if not done:
                    raise
                outcomes = [problem] * len(rest)  # of these alone: the others are written
            for place, outcome in zip(rest, outcomes, strict=True):
                found[place] = None if quietly and isinstance(outcome, Receipt) else outcome
        return [found[place] for place in range(len(asks))]

    async def _many(self, operation: Operation[list[Outcome]], asks: Sequence[Ask]) -> list[Outcome]:
        asking.check_batch(asks)
        return await self._write(operation)

    @staticmethod
    def _only(outcomes: list[Outcome]) -> Receipt:
        (outcome,) = outcomes
        if isinstance(outcome, LeftfoldError):
            raise outcome
        return outcome

    async def _read(self, view: Callable[P, Steps[T]], *arguments: P.args, **named: P.kwargs) -> T:
        # The steps are made anew each time: the store may run them again, from the first one.
        return await self.store.run(Operation(lambda: view(*arguments, **named), apart=True, reads=True))

    async def _write(self, operation: Operation[T], *, folds: bool = True) -> T:
        answer = await self.store.run(operation)
        self._writes += 1
        self._is_to_fold |= self._writes % _FOLD_EVERY == 0
        if folds and self._is_to_fold and self.store.counts_grow:
            self._is_to_fold = False
            with suppress(StoreError):  # what was asked has happened; another write folds
                await self.store.run(Operation(lambda: one("fold_counts", {"limit": _FOLD_ROWS}), apart=True))
        return answer


def one(name: str, arguments: dict[str, Any]) -> Steps[list[Any]]:
    """Run one query."""
    return (yield Query(name, arguments))
