"""From a function's parameters to a payload and back: what is enqueued is what the handler can read.

A payload is a JSON object with the arguments by name. Only what the caller gave stands in it, so that a default may
change while jobs wait.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Union, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import asdict

from leftfold.app import functions, wire
from leftfold.app.context import Context, CurrentJob, SyncContext, current_job
from leftfold.app.depends import Dependencies, is_dependency
from leftfold.core.errors import DesignError, ValidationError
from leftfold.core.payload import NULL, to_payload


class Signature:
    """What a handler takes, and what it gives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functions.check(function)
        self._name = functions.name_of(function)
        parameters, hints = functions.parameters_of(function), functions.hints_of(function)
        self._kind = Context if inspect.iscoroutinefunction(function) else SyncContext
        self.context = _context_of(self._name, parameters, hints, self._kind)
        called = [each for each in parameters if each.name != self.context]
        self._called = inspect.Signature(called)
        self.depends: Dependencies = {each.name: each.default for each in called if is_dependency(each.default)}
        self._scalars = _scalars_of(called, hints)
        self._names = tuple(each.name for each in called)
        self._unnamed = [each for each in parameters if each.kind is inspect.Parameter.POSITIONAL_ONLY]
        self._type = _struct(self._name, [each for each in called if each.name not in self.depends], hints)
        self._takes_all = all(each.default is each.empty for each in called)  # none may be left out
        self._arguments = wire.decoder(self._name, self._type)
        self._result = wire.decoder(self._name, hints.get("return", Any))
        self._may_give_nothing = any(hints.get("return", Any) is each for each in (None, type(None), Any))

    @property
    def is_bare(self) -> bool:
        """Whether the function is called with what its caller gives, and nothing else."""
        return self.context is None and not self.depends

    def to_payload(self, given: Sequence[Any], named: Mapping[str, Any]) -> Raw:
        """Give a call's arguments as a payload, or refuse what the handler could not be called with."""
        if not named and tuple(map(type, given)) == self._scalars:  # then all that follows comes to this
            return to_payload("payload", dict(zip(self._names, given)))  # noqa: B905 - as many as there are types
        try:
            arguments = self._called.bind(*given, **named).arguments
        except TypeError as problem:
            raise ValidationError(f"{self._name} cannot be called so: {problem}") from problem
        made = next((name for name in arguments if name in self.depends), None)
        if made is not None:
            raise ValidationError(
                f"{self._name} cannot be called so: each attempt makes its own {made!r}, leave it out"
            )
        try:
            plain = wire.whole(arguments)
            msgspec.convert(plain, self._type, dec_hook=wire.typed)  # tells bytes and times from texts, as JSON cannot
        except wire.UNWRITABLE as problem:
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
        if self._takes_all:
            return asdict(found)
        return {name: value for name in found.__struct_fields__ if (value := getattr(found, name)) is not UNSET}

    def to_result(self, value: Any) -> Raw:
        """Give what a handler returned as JSON."""
        if value is None and self._may_give_nothing:
            return NULL
        try:
            result = to_payload("result", wire.plain(value))
        except wire.UNWRITABLE as problem:
            raise ValidationError(f"the result of {self._name} cannot be written as JSON: {problem}") from problem
        try:
            self._result.decode(result)
        except wire.UNWRITABLE as problem:
            raise ValidationError(f"{self._name} returned what its annotation does not say: {problem}") from problem
        return result

    def of_result(self, result: Raw) -> Any:
        """Give a stored result, typed as the handler says."""
        try:
            return self._result.decode(result)
        except msgspec.MsgspecError as problem:
            raise ValidationError(f"the stored result is not what {self._name} says it gives: {problem}") from problem

    def called(self, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Give the arguments of a direct call by name, with the context of the job that it stands in."""
        arguments = dict(self._called.bind(*given, **named).arguments)
        return arguments if self.context is None else {self.context: current_job().seen_as(self._kind), **arguments}

    def missing(self, arguments: Mapping[str, Any]) -> Dependencies:
        """Give the dependencies that a call does not bring along."""
        return {name: each for name, each in self.depends.items() if name not in arguments}

    def call(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call the function with arguments by name, those that it takes by place among them."""
        if not self._unnamed:
            return function(**arguments)
        named = dict(arguments)
        placed = [named.pop(each.name, each.default) for each in self._unnamed]
        return function(*placed, **named)


def _context_of(
    name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], kind: type[CurrentJob]
) -> str | None:
    """Give the parameter that takes the context. It is the first one: only so can a type checker leave it out."""
    found = None
    for place, each in enumerate(parameters):
        hint = hints.get(each.name)
        if not {hint, *get_args(hint)} & _CONTEXTS:
            continue
        plain = hint in _CONTEXTS and each.default is each.empty and each.kind is not each.KEYWORD_ONLY
        if place or not plain:
            raise DesignError(
                f"{name} takes {each}: the context is the first parameter, as in (ctx: {kind.__name__}, …)"
            )
        if hint not in {kind, CurrentJob}:
            way = "an async def" if kind is Context else "a def"
            raise DesignError(f"{name} takes {each}: the context of {way} handler is a {kind.__name__}")
        found = each.name
    return found


_CONTEXTS: Final = {Context, CurrentJob, SyncContext}
#: What is written and read back as it is, and needs no second look.
_SCALARS: Final = (int, str, bool, float)


def _scalars_of(parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Give the types of a function's arguments, if it takes them by place and each of them is plain."""
    found = tuple(hints.get(each.name) for each in parameters)
    by_place = all(each.kind is not each.KEYWORD_ONLY and not is_dependency(each.default) for each in parameters)
    return found if by_place and all(any(each is plain for plain in _SCALARS) for each in found) else None


def _struct(name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Any:
    fields: list[Any] = []
    for each in parameters:
        hint = hints.get(each.name, Any)
        required = each.default is inspect.Parameter.empty
        optional: Any = Union.__getitem__((hint, UnsetType))  # a hint may be no type, so no `|`
        fields.append((each.name, hint) if required else (each.name, optional, UNSET))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, module=name)
