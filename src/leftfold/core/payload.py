"""Payloads: one JSON value each, kept as the text it came as, and such that every store and every reader agrees on it.

JSON allows what some reader loses: integers past 64 bits, numbers past a float, the NUL that a database refuses,
halves of surrogate pairs, a nesting that overflows a stack. They are refused here, before anything is written.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from leftfold.core import limits
from leftfold.core.errors import LimitExceededError, ValidationError

NULL: Final = Raw(b"null")

#: For a look at the shapes of numbers: every digit becomes a 0, every E an e.
_SHAPES: Final = bytes.maketrans(b"123456789E", b"000000000e")
#: A surrogate pair, escaped, and what is half of one where all pairs are taken away; a backslash may be one itself.
_PAIR: Final = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_LONG_NUMBER: Final = "0" * 19
_VALUE: Final = msgspec.json.Decoder(Raw)
_BLANK: Final = ord(" ")  # and what sorts before it
_LONG: Final = range(-(2**63), 2**63)


def to_payload(what: str, value: Any) -> Raw:
    """Give a value as a payload, which is checked by the command that it goes into, and only there.

    Whatever msgspec can write is welcome; a NaN, which it writes as null, is not.
    """
    if isinstance(value, Raw):
        return value.copy()  # what is checked is what is written, whatever becomes of the caller's buffer
    try:
        text = msgspec.json.encode(value)
        if b"null" in text:
            # What it wrote, it knows, but for payloads inside of payloads: only those come to the hook.
            _check_value(what, msgspec.to_builtins(value, enc_hook=msgspec.json.decode))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as problem:
        raise ValidationError(f"{what} cannot be written as JSON: {problem}") from problem
    return Raw(text)


def check_payloads(what: str, payloads: Sequence[Raw]) -> list[str]:
    """Refuse the same of many, and give their texts: one look at all of them together is nearly always enough."""
    texts = list(map(bytes, payloads))
    if not _are_plain(texts):
        for payload in payloads:
            check_payload(what, payload)
    return [text.decode() for text in texts]


def _are_plain(texts: list[bytes]) -> bool:
    """Tell whether all of them may pass for certain. Each is one value: read on end, they are what they are alone."""
    together = b"\n".join(texts)
    try:
        return (
            len(together) <= limits.PAYLOAD_BYTES_MAX
            and (together.isascii() or bool(together.decode()))
            and list(map(bytes, _VALUE.decode_lines(together))) == texts
            and not _has_odd_values(together)
            and not any(len(text) > limits.PAYLOAD_DEPTH_MAX and _is_deep(text) for text in texts)
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def check_payload(what: str, payload: Raw) -> None:
    """Refuse a payload that is too large, not exactly one JSON value, or that not every reader would read alike."""
    text = bytes(payload)
    if len(text) > limits.PAYLOAD_BYTES_MAX:
        limits.most(what, text, limits.PAYLOAD_BYTES_MAX)
    try:
        text.isascii() or text.decode()
        _VALUE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        why = "it holds half of a surrogate pair, which stands for nothing" if _has_half_a_pair(text) else problem
        raise ValidationError(f"{what} is not JSON: {why}") from problem
    if text[0] <= _BLANK or text[-1] <= _BLANK:
        raise ValidationError(f"{what} has blanks around its JSON: leave them out")
    if _is_suspect(text):
        try:
            _check_value(what, msgspec.json.decode(text))
            _check_value(what, json.loads(text, object_pairs_hook=_side_by_side))
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise ValidationError(f"{what} is not JSON that every reader reads alike: {problem}") from problem


def _side_by_side(members: list[tuple[str, Any]]) -> list[Any]:
    """Give keys and values as a list: of two members with one key, a mapping would hide the first."""
    return [each for member in members for each in member]


def _has_half_a_pair(text: bytes) -> bool:
    """Tell whether that is why a text cannot be read: the library calls it truncated, or malformed."""
    return _HALF.search(_PAIR.sub(b"", text)) is not None


def _is_suspect(text: bytes) -> bool:
    """Tell whether a payload may hold what is to be refused: a cheap look, after which nearly every one may pass."""
    return _has_odd_values(text) or (len(text) > limits.PAYLOAD_DEPTH_MAX and _is_deep(text))


def _has_odd_values(text: bytes) -> bool:
    """Tell whether there may be a text or a number in it that is to be refused."""
    shapes = text.translate(_SHAPES).decode("latin-1")  # to look for a text in a text is much faster than for bytes
    return "\\u" in shapes or "e000" in shapes or "e+000" in shapes or _LONG_NUMBER in shapes


def _is_deep(text: bytes) -> bool:
    """Tell whether it may be nested too deep."""
    return text.count(b"[") + text.count(b"{") > limits.PAYLOAD_DEPTH_MAX


def _check_value(what: str, value: Any, depth: int = 1) -> None:
    match value:
        case str():
            limits.storable(what, value)
        case bool() | None:
            pass
        case int() if value not in _LONG:
            raise ValidationError(f"{what} holds an integer that does not fit in 64 bits: send it as text")
        case float() if not math.isfinite(value):
            raise ValidationError(f"{what} holds {value}, which JSON does not have: send null or a text")
        case dict() | list() | tuple():
            if depth > limits.PAYLOAD_DEPTH_MAX:
                raise LimitExceededError(f"{what} is nested deeper than {limits.PAYLOAD_DEPTH_MAX}")
            for item in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
                _check_value(what, item, depth + 1)
        case _:
            pass
