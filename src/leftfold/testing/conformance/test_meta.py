"""The kit itself: no operation of the engine is without its class of cases."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import leftfold
from leftfold.testing import conformance


def operations(engine: type) -> list[str]:
    """Give the names of everything that can be asked of an engine."""
    found = inspect.getmembers(engine, inspect.isroutine)
    return sorted(name for name, _ in found if not name.startswith("_"))


def case_classes() -> Iterator[tuple[str, type]]:
    """Give every class of cases in the kit."""
    for module in pkgutil.iter_modules(conformance.__path__):
        if module.name.startswith("test_"):
            loaded = importlib.import_module(f"{conformance.__name__}.{module.name}")
            yield from inspect.getmembers(loaded, inspect.isclass)


def class_of(operation: str) -> str:
    """Give the name of the class that holds the cases of an operation: `enqueue_many` → `TestEnqueueMany`."""
    return "Test" + "".join(word.capitalize() for word in operation.split("_"))


@pytest.mark.parametrize("operation", operations(leftfold.Engine))
def test_an_operation_has_a_class_of_cases(operation: str) -> None:
    classes = dict(case_classes())
    assert class_of(operation) in classes, f"nothing in the kit proves {operation}"
    cases = [name for name in vars(classes[class_of(operation)]) if name.startswith("test_")]
    assert cases, f"{class_of(operation)} has no cases"


def test_both_engines_have_the_same_operations() -> None:
    assert operations(leftfold.Engine) == operations(leftfold.AsyncEngine)
