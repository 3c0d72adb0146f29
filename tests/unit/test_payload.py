"""Payloads: one JSON value, kept as it came, and nothing that some reader or some store would lose."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from tests.unit.samples import json_text
from tests.unit.scene import CLIENT, Scene, owner_of

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core import payload as payloads
from leftfold.core.errors import LimitExceededError, ValidationError
from leftfold.core.lifecycle import State
from leftfold.core.payload import NULL, check_payload, check_payloads
from leftfold.core.values import Failure, Spec

NAN, INF = float("nan"), float("inf")
ENCODED: Final = "cannot be written as JSON"
READ_ALIKE: Final = "is not JSON that every reader reads alike"
TOO_LONG: Final = "does not fit in 64 bits: send it as text"
NO_TEXT: Final = "a NUL or half of a surrogate pair"
NO_NUMBER: Final = "which JSON does not have"

#: Everywhere that a payload comes in.
ENTRANCES: Final[dict[str, Callable[[Raw], object]]] = {
    "check": lambda text: check_payload("payload", text),
    "spec": lambda text: Spec(kind="k", payload=text).check(),
    "error": lambda text: Failure(code="c", details=text).check(),
    "enqueue": lambda text: c.Enqueue(by=CLIENT, job_id="j", spec=Spec(kind="k", payload=text)),
    "signal": lambda text: c.Signal(by=CLIENT, key="k", payload=text),
    "complete": lambda text: c.Complete(by=owner_of(1), result=text),
    "note": lambda text: c.Note(by=CLIENT, note=e.Custom(name="n", data=text)),
    "one of many": lambda raw: check_payloads("payload", [Raw(b"1"), raw, Raw(b"{}")]),
}


def to_payload(what: str, value: Any) -> Raw:
    """Give a value as a payload that a command has taken."""
    payload = payloads.to_payload(what, value)
    check_payload(what, payload)
    return payload


@dataclass
class Point:
    x: float
    y: float | None = None


class Line(msgspec.Struct):
    start: Point
    end: Point | None = None


def nested(depth: int, inmost: Any, *, in_objects: bool = False) -> Any:
    for _ in range(depth):
        inmost = {"a": inmost} if in_objects else [inmost]
    return inmost


def test_a_payload_is_measured_in_bytes() -> None:
    check_payload("payload", json_text(262_144))
    for payload in (json_text(262_145), Raw(json.dumps("ä" * 131_072, ensure_ascii=False).encode())):
        with pytest.raises(LimitExceededError, match="payload has a length of 26214"):
            check_payload("payload", payload)
    with pytest.raises(LimitExceededError, match="result has a length of 262145"):
        to_payload("result", "t" * 262_143)


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"NaN", b"[Infinity]", b'1,"queue":"other"', b"1 2", b"'a'", b" 1", b"1\n", b'"\xff"', b'"\x00"',
     b'"\n"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b'"\\ud800"', b'"\\ud800x"', b'"\\udc00\\ud800"', b"01", b"[1,]",
     b"[" * 100_000],
    ids=lambda text: repr(text[:16]),
)  # fmt: skip
def test_a_payload_is_exactly_one_json_value(entrance: Callable[[Raw], object], text: bytes) -> None:
    with pytest.raises(ValidationError, match="JSON"):
        entrance(Raw(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'"\\uDFFFx"', "half of a surrogate pair"),
        (b'["\\ud83d\\ude00\\ud83d"]', "half of a surrogate pair"),
        (b'["\\ud83d\\ude00",]', "malformed"),
        (b'"\\\\ud800', "truncated"),
        (b'"cut off', "truncated"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_why_it_is_no_json_is_said(text: bytes, why: str) -> None:
    with pytest.raises(ValidationError, match=f"payload is not JSON: .*{why}"):
        check_payload("payload", Raw(text))


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"9223372036854775808", TOO_LONG),
        (b"-9223372036854775809", TOO_LONG),
        (b'{"a":[1,{"b":18446744073709551615}]}', TOO_LONG),
        (b"1" * 4_300, TOO_LONG),
        (b"1" * 4_301, READ_ALIKE),
        (b"[" + b"1" * 100_000 + b"]", READ_ALIKE),
        (b"1e309", READ_ALIKE),
        (b"[-1E+400]", READ_ALIKE),
        (b"1e0309", READ_ALIKE),
        (b"1" * 310 + b".5", READ_ALIKE),
        (b"123456789012345678e299", READ_ALIKE),
        (b'"\\u0000"', NO_TEXT),
        (b'["a\\u0000b"]', NO_TEXT),
        (b'{"\\u0000":1}', NO_TEXT),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_what_some_reader_would_lose_is_refused(entrance: Callable[[Raw], object], text: bytes, why: str) -> None:
    with pytest.raises(ValidationError, match=why) as caught:
        entrance(Raw(text))
    assert type(caught.value) is ValidationError


@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
@pytest.mark.parametrize(
    "text",
    [
        b"null",
        b"true",
        b"9223372036854775807",
        b"-9223372036854775808",
        b'{"a" : [1 , 2]}',
        b"1e308",
        b"[1E+0308,1e-400,-0.0]",
        b"0." + b"1" * 400,
        b'"11111111111111111111"',
        b'"\\u00e4"',
        b'"\\ud83d\\ude00"',
        b'{"\\u0001":"\x7f"}',
        '"💡ä"'.encode(),
        b'"' + b"[" * 101 + b'"',
        b"[" + b"[],{}," * 100 + b"1]",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_what_every_reader_reads_alike_is_fine_whatever_it_looks_like(
    entrance: Callable[[Raw], object], text: bytes
) -> None:
    entrance(Raw(text))


@pytest.mark.parametrize("in_objects", [False, True])
@pytest.mark.parametrize("inmost", [1, None, []], ids=["number", "null", "list"])
def test_a_payload_is_nested_a_hundred_deep_and_no_deeper(inmost: Any, *, in_objects: bool) -> None:
    deep = 100 - (inmost == [])
    value = nested(deep, inmost, in_objects=in_objects)
    assert msgspec.json.decode(to_payload("payload", value)) == value
    too_deep = nested(deep + 1, inmost, in_objects=in_objects)
    for refused in (
        lambda: to_payload("payload", too_deep),
        lambda: check_payload("payload", Raw(json.dumps(too_deep).encode())),
    ):
        with pytest.raises(LimitExceededError, match="payload is nested deeper than 100"):
            refused()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, b"null"),
        (False, b"false"),
        (-(2**63), b"-9223372036854775808"),
        (0.5, b"0.5"),
        ("null", b'"null"'),
        ("💡\n", '"💡\\n"'.encode()),
        ([1, None, (2, "a")], b'[1,null,[2,"a"]]'),
        ({"b": {1: None}, "a": []}, b'{"b":{"1":null},"a":[]}'),
        (Point(x=1.5), b'{"x":1.5,"y":null}'),
        (Line(start=Point(x=1.0, y=2.0)), b'{"start":{"x":1.0,"y":2.0},"end":null}'),
        (datetime(2020, 1, 2, tzinfo=UTC), b'"2020-01-02T00:00:00Z"'),
        (Decimal("NaN"), b'"NaN"'),
        (Raw(b"[1]"), b"[1]"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bytes) else repr(value[:32]),
)
def test_whatever_can_be_written_as_json_becomes_a_payload(value: Any, text: bytes) -> None:
    assert to_payload("payload", value) == Raw(text)


ENDLESS: Final[list[Any]] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (NAN, f"payload holds nan, {NO_NUMBER}"),
        ([None, INF], f"payload holds inf, {NO_NUMBER}"),
        ({"a": [-INF]}, f"payload holds -inf, {NO_NUMBER}"),
        ({1.0, NAN}, NO_NUMBER),
        (Point(x=NAN), NO_NUMBER),
        (Line(start=Point(x=1.0), end=Point(x=1.0, y=INF)), NO_NUMBER),
        (2**63, TOO_LONG),
        ([None, 2**63], TOO_LONG),
        (-(2**63) - 1, TOO_LONG),
        (10**5_000, ENCODED),
        ("\x00", NO_TEXT),
        ({"\x00": None}, NO_TEXT),
        ("\ud800", ENCODED),
        ({"\udfff": 1}, ENCODED),
        (object(), ENCODED),
        ({(1, 2): 3}, ENCODED),
        (1j, ENCODED),
        (ENDLESS, ENCODED),
        (Raw(b"{"), "payload is not JSON"),
        (Raw(b" 1"), "has blanks around"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_would_lose_is_refused_and_not_written_as_something_else(value: Any, why: str) -> None:
    with pytest.raises(ValidationError, match=why) as caught:
        to_payload("payload", value)
    assert type(caught.value) is ValidationError


def test_the_payload_that_says_nothing() -> None:
    assert Raw(b"null") == NULL == to_payload("payload", None)
    check_payload("payload", NULL)


storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(plain | storable, lambda inner: st.lists(inner) | st.dictionaries(storable, inner), max_leaves=20)


@given(values)
def test_a_value_reads_back_as_it_was_written(value: Any) -> None:
    payload = to_payload("payload", value)
    assert msgspec.json.decode(payload) == json.loads(bytes(payload)) == value


numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
texts = st.text(st.sampled_from("u0\\ä\x00\ud83d\ude00💡1")).map(json.dumps)
documents = st.recursive(
    numbers | texts,
    lambda inner: (
        st.lists(inner).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(texts, inner)).map(lambda items: f"{{{','.join(map(':'.join, items))}}}")
    ),
    max_leaves=8,
)


@given(documents)
@example('{"":{"a":"\\u0000"},"":[]}')
def test_the_quick_look_misses_nothing_that_a_long_one_finds(document: str) -> None:
    fine = _reads_alike(json.loads(document, object_pairs_hook=lambda pairs: [*pairs]))
    try:
        check_payload("payload", Raw(document.encode()))
    except ValidationError:
        assert not fine
    else:
        assert fine


def _reads_alike(value: Any) -> bool:
    match value:
        case str():
            return "\x00" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return math.isfinite(value)
        case _:
            return all(map(_reads_alike, value))


def test_a_job_shows_its_payload_and_output_as_python_values() -> None:
    scene = Scene.at(State.RUNNING)
    assert (scene.job.payload, scene.job.output) == ({"n": 1}, None)
    scene.do(c.Complete(by=scene.owner, result=Raw(b'{"ok":true}')))
    assert scene.job.output == {"ok": True}


def test_what_is_no_payload_is_refused_also_beside_a_null() -> None:
    assert bytes(to_payload("payload", [NULL, None])) == b"[null,null]"
    with pytest.raises(ValidationError, match="payload cannot be written as JSON"):
        to_payload("payload", [None, object()])


@pytest.mark.parametrize("texts", [(b"[1,", b"2] 3"), (b"1 2", b"3"), (b"1\n2", b"3"), (b"", b"1")])
def test_payloads_are_read_together_and_each_is_one_value_all_the_same(texts: tuple[bytes, ...]) -> None:
    with pytest.raises(ValidationError, match="is not JSON"):
        check_payloads("payload", list(map(Raw, texts)))


def test_the_texts_of_many_payloads_are_as_they_came() -> None:
    texts = ['{\n "a": 1\n}', '"Zürich"', "[" * 99 + "]" * 99, "[]" * 0 + "7", json.dumps([[]] * 200)]
    assert check_payloads("payload", [Raw(text.encode()) for text in texts]) == texts
