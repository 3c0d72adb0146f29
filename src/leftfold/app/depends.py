"""What a handler needs beside its arguments: made for each attempt, and put away behind it."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from leftfold.core.errors import DesignError

if TYPE_CHECKING:
    from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager

T = TypeVar("T")


class _Depends:
    """A factory, as the default of a parameter."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        _check(factory)
        self.factory = factory
        inside = inspect.unwrap(factory)  # what contextlib's decorators made of a generator is entered as well
        self._is_manager = inside is not factory and _is_generator(inside)
        self.is_async = inspect.iscoroutinefunction(factory) or inspect.isasyncgenfunction(inside)

    async def enter(self, stack: AsyncExitStack) -> Any:
        """Give the value; the stack puts it away."""
        if not self.is_async:
            return self.enter_here(stack)
        if inspect.iscoroutinefunction(self.factory):
            return await self.factory()
        manager = self.factory if self._is_manager else asynccontextmanager(self.factory)
        return await stack.enter_async_context(manager())

    def enter_here(self, stack: AsyncExitStack | ExitStack) -> Any:
        """Do the same without an event loop."""
        if self._is_manager:
            return stack.enter_context(self.factory())
        if inspect.isgeneratorfunction(self.factory):
            return stack.enter_context(contextmanager(self.factory)())
        return self.factory()


def _is_generator(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _check(factory: object) -> None:
    """Refuse what could not be called when an attempt begins."""
    if not callable(factory):
        raise DesignError(
            f"Depends({factory!r}) is no factory: give a function that makes the value, without calling it"
        )
    try:
        signature = inspect.signature(factory)
        signature.bind()
    except TypeError as problem:
        raise DesignError(f"Depends({factory!r}): a factory is called without arguments, but: {problem}") from problem
    except ValueError:  # something built in, which does not tell
        return
    if any(is_dependency(each.default) for each in signature.parameters.values()):
        raise DesignError(
            f"Depends({factory!r}) depends on others itself: a factory is called without arguments, "
            "so let it call what it needs"
        )


@overload
def Depends(factory: Callable[[], "_GeneratorContextManager[T] | _AsyncGeneratorContextManager[T]"]) -> T: ...
@overload
def Depends(factory: Callable[[], AsyncIterator[T]]) -> T: ...
@overload
def Depends(factory: Callable[[], Iterator[T]]) -> T: ...
@overload
def Depends(factory: Callable[[], Awaitable[T]]) -> T: ...
@overload
def Depends(factory: Callable[[], T]) -> T: ...
def Depends(factory: Callable[[], Any]) -> Any:  # noqa: N802 - it reads as a type where it stands
    """Give the default of a parameter that is no part of the job.

    `session: Session = Depends(new_session)` lets every attempt have one. The factory may be a function, an async one,
    or a generator of either kind that yields the value once, as it is or as a context manager: what stands behind the
    `yield` runs when the attempt is over, and sees its exception. Those of a `def` handler run in its thread.
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
