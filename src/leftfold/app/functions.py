"""Which functions can be jobs. What could never run is refused where it is written, not when its first job comes."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

from leftfold.core.errors import DesignError

_NAMED: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def name_of(function: object) -> str:
    """Give how a message calls a function."""
    return str(getattr(function, "__qualname__", repr(function)))


def check(function: object) -> None:
    """Refuse what is no function, and what gives no single result."""
    name, bare = name_of(function), _bare(function)
    why = None
    if not callable(bare):
        why = "is no function: write @app.job above one, and settings as in @app.job(name=…)"
    elif isinstance(bare, type):
        why = "is a class: a job is a function"
    elif inspect.ismethod(bare):
        why = "is bound to an object, which a worker would not find: a job is a function"
    elif inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare):
        why = "is a generator: a job gives one result, so return it"
    elif not inspect.isroutine(bare) and not hasattr(bare, "__wrapped__"):
        why = "is an object that can be called: a job is a function"
    if why is not None:
        raise DesignError(f"{name} {why}")


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Give a function's parameters, each of which has a name for the payload."""
    name = name_of(function)
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as problem:
        raise DesignError(f"the parameters of {name} cannot be read: {problem}") from problem
    if _is_in_class(name) and found and found[0].name in {"self", "cls"}:
        raise DesignError(f"{name} is a method: no worker has its {found[0].name}, so write a function")
    for each in found:
        if each.kind not in _NAMED:
            raise DesignError(
                f"{name} takes {each}: the arguments of a job are stored by their names, so each needs one"
            )
    return found


def hints_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Give a function's annotations, those that are written as text evaluated."""
    try:
        return get_type_hints(_bare(function), include_extras=True)
    except (NameError, AttributeError) as problem:
        raise DesignError(
            f"the annotations of {name_of(function)} cannot be read: {problem}; "
            "the worker reads them, too, so import their names at the top and outside of `if TYPE_CHECKING:`"
        ) from problem
    except (SyntaxError, TypeError, ValueError) as problem:
        raise DesignError(f"the annotations of {name_of(function)} cannot be read: {problem}") from problem


def _bare(function: Any) -> Any:
    """Give the function inside of a functools.partial."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is_in_class(name: str) -> bool:
    around = name.rpartition(".")[0]
    return bool(around) and not around.endswith("<locals>")
