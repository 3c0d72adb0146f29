"""Typed values as JSON and back: what msgspec knows, and Pydantic's models where Pydantic is installed."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Never, NoReturn
from uuid import UUID

import msgspec
from msgspec import inspect

from leftfold.core.errors import DesignError

#: What JSON writes as text although it is none: kept as it is until its type was compared with the one that is wanted.
_NO_TEXT: Final = (bytes, bytearray, memoryview, date, datetime, time, timedelta, Decimal, UUID)
#: What is raised for a value that JSON cannot say, or that is not of its type.
UNWRITABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def decoder(name: str, type_: Any) -> msgspec.json.Decoder[Any]:
    """Give what reads a type from JSON, or refuse a type that could not be read."""
    wanted = Any if type_ is Never or type_ is NoReturn else type_
    try:
        made = msgspec.json.Decoder(wanted, dec_hook=typed)
        foreign = next(_foreign(inspect.type_info(wanted), set()), None)
    except TypeError as problem:
        raise DesignError(f"the types of {name} cannot be stored as JSON: {problem}") from problem
    if foreign is not None:
        raise DesignError(
            f"the types of {name} cannot be stored as JSON: nobody knows how to read {foreign!r}; "
            "take a dataclass, a msgspec.Struct or a Pydantic model"
        )
    return made


def plain(value: Any) -> Any:
    """Give a value as lists, mappings and scalars. A model may keep things to itself, as it says."""
    return msgspec.to_builtins(value, builtin_types=_NO_TEXT, enc_hook=_dumped)


def whole(value: Any) -> Any:
    """Give a value as lists, mappings and scalars, or refuse one of which something would be left behind."""
    return msgspec.to_builtins(value, builtin_types=_NO_TEXT, enc_hook=_dumped_whole)


def typed(type_: Any, value: Any) -> Any:
    """Read what msgspec does not know. Text that Pydantic reads counts as JSON, also for strict models."""
    if type_ is object:
        return value
    return type_.model_validate_json(msgspec.json.encode(value), by_alias=True, by_name=True)


def _dumped(value: Any) -> Any:
    """Write what msgspec does not know, by the names of fields: a model need not read by the alias that it writes."""
    if not _is_model(type(value)):
        raise TypeError(f"a {type(value).__qualname__} has no form in JSON")
    return value.model_dump(mode="json", by_alias=False, round_trip=True)


def _dumped_whole(value: Any) -> Any:
    dumped = _dumped(value)
    copy = typed(type(value), dumped)
    for name in type(value).model_fields:
        given, read = getattr(value, name), getattr(copy, name)
        if given != read and "__eq__" in {each for base in type(given).__mro__[:-1] for each in vars(base)}:
            raise ValueError(  # without the value: it may be a secret
                f"the field {name!r} of {type(value).__qualname__} would not reach the handler: the model leaves it "
                "out when it is written, or hides it; hand over what the handler can look it up by"
            )
    return dumped


def _is_model(type_: Any) -> bool:
    return isinstance(type_, type) and hasattr(type_, "model_validate_json")


def _foreign(node: Any, seen: set[int]) -> Iterator[Any]:
    """Give the types inside of a type that neither msgspec nor Pydantic can read."""
    if id(node) in seen:  # a type that holds itself
        return
    seen.add(id(node))
    if isinstance(node, inspect.CustomType):
        if node.cls is not object and not _is_model(node.cls):
            yield node.cls
    elif isinstance(node, msgspec.Struct):
        for name in node.__struct_fields__:
            yield from _foreign(getattr(node, name), seen)
    elif isinstance(node, tuple):
        for each in node:
            yield from _foreign(each, seen)
