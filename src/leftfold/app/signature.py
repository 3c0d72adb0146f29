"""From a function's parameters to a payload and back: what is enqueued is what the handler can read.

A payload is a JSON object with the arguments by name. Only what the caller gave stands in it, so that a default may
change while jobs wait. Whatever msgspec knows will do as a type, and Pydantic models where Pydantic is installed.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Union, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from leftfold.app.context import Context
from leftfold.app.depends import Dependencies, is_dependency
from leftfold.core.errors import DesignError, ValidationError
from leftfold.core.payload import to_payload

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """What a handler takes, and what it gives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__qualname__", repr(function))
        self.context: str | None = None
        self.depends: Dependencies = {}
        try:
            hints = get_type_hints(function, include_extras=True)
            parameters = list(inspect.signature(function).parameters.values())
        except (NameError, TypeError, ValueError) as problem:
            raise DesignError(f"the parameters of {self._name} cannot be read: {problem}") from problem
        stored = [each for each in parameters if self._is_stored(each, hints.get(each.name, Any))]
        self._bound = inspect.Signature(stored)
        self._result = _decoder(self._name, hints.get("return", Any))
        self._arguments = _decoder(self._name, _struct(self._name, stored, hints))

    def _is_stored(self, parameter: inspect.Parameter, hint: Any) -> bool:
        """Tell whether a parameter's value comes out of the payload, and note where it comes from if not."""
        if parameter.kind not in _NAMED:
            raise DesignError(
                f"{self._name} takes {parameter}: the arguments of a job are stored by their names, so each needs one"
            )
        if hint is Context:
            self.context = parameter.name
        elif is_dependency(parameter.default):
            self.depends = {**self.depends, parameter.name: parameter.default}
        else:
            return True
        return False

    def missing(self, named: Mapping[str, Any]) -> Dependencies:
        """Give the dependencies that a direct call does not bring along."""
        return {name: each for name, each in self.depends.items() if name not in named}

    def to_payload(self, given: Sequence[Any], named: Mapping[str, Any]) -> Raw:
        """Give a call's arguments as a payload, or refuse what the handler could not be called with."""
        try:
            arguments = self._bound.bind(*given, **named).arguments
            plain = msgspec.to_builtins(arguments, str_keys=True, enc_hook=_plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise ValidationError(f"{self._name} cannot be called so: {problem}") from problem
        payload = to_payload("payload", plain)
        self.of_payload(payload)
        return payload

    def of_payload(self, payload: Raw) -> dict[str, Any]:
        """Give the arguments of a payload, typed as the handler says."""
        try:
            found = self._arguments.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ValidationError(f"{self._name} cannot be called so: {problem}") from problem
        return {name: value for name in found.__struct_fields__ if (value := getattr(found, name)) is not UNSET}

    @staticmethod
    def to_result(value: Any) -> Any:
        """Give a handler's result as what JSON can say."""
        try:
            return msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise ValidationError(f"the result cannot be written as JSON: {problem}") from problem

    def of_result(self, result: Raw) -> Any:
        """Give a stored result, typed as the handler says."""
        try:
            return self._result.decode(result)
        except msgspec.MsgspecError as problem:
            raise ValidationError(f"the stored result is not what {self._name} says it gives: {problem}") from problem


def _struct(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Any:
    fields: list[Any] = []
    for each in parameters:
        hint = hints.get(each.name, Any)
        required = each.default is inspect.Parameter.empty
        optional: Any = Union.__getitem__((hint, UnsetType))  # a hint may be no type, so no `|`
        fields.append((each.name, hint) if required else (each.name, optional, UNSET))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, module=name)


def _decoder(name: str, type_: Any) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(type_, dec_hook=_typed)
    except TypeError as problem:
        raise DesignError(f"the types of {name} cannot be stored as JSON: {problem}") from problem


def _plain(value: Any) -> Any:
    """Write what msgspec does not know: Pydantic's models, whatever its version."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__qualname__} has no form in JSON")
    return dump(mode="json")


def _typed(type_: type, value: Any) -> Any:
    validate = getattr(type_, "model_validate", None)
    if validate is None:
        raise TypeError(f"a {type_.__qualname__} cannot be read from JSON: take a dataclass or a msgspec.Struct")
    return validate(value)
