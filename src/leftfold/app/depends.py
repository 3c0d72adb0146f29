"""What a handler needs beside its arguments: made for each attempt, and put away behind it."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any


class _Depends:
    """A factory, as the default of a parameter."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory
        self.is_async = inspect.isasyncgenfunction(factory) or inspect.iscoroutinefunction(factory)

    async def enter(self, stack: AsyncExitStack) -> Any:
        """Give the value; the stack puts it away."""
        if inspect.isasyncgenfunction(self.factory):
            return await stack.enter_async_context(asynccontextmanager(self.factory)())
        return await self.factory() if self.is_async else self.enter_here(stack)

    def enter_here(self, stack: AsyncExitStack | ExitStack) -> Any:
        """Do the same without an event loop."""
        if inspect.isgeneratorfunction(self.factory):
            return stack.enter_context(contextmanager(self.factory)())
        return self.factory()


def Depends(factory: Callable[[], Any]) -> Any:  # noqa: N802 - it reads as a type where it stands
    """Give the default of a parameter that is no part of the job.

    `session: Session = Depends(new_session)` lets every attempt have one. The factory may be a function, an async one,
    or a generator of either kind that yields the value once: what stands behind the `yield` runs when the attempt is
    over, and sees its exception. Those of a `def` handler run in its thread.
    """
    return _Depends(factory)


Dependencies = Mapping[str, _Depends]


def is_dependency(default: object) -> bool:
    """Tell whether a parameter's default is one."""
    return isinstance(default, _Depends)


async def resolved(depends: Dependencies, stack: AsyncExitStack) -> dict[str, Any]:
    """Give the values of all of them, in the order of the parameters."""
    return {name: await each.enter(stack) for name, each in depends.items()}


def resolved_here(depends: Dependencies, stack: ExitStack) -> dict[str, Any]:
    """Do the same without an event loop."""
    return {name: each.enter_here(stack) for name, each in depends.items()}
