"""Arguments are checked where they are enqueued, and arrive as what the handler says."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from leftfold import App, Depends, SyncContext
from leftfold.core.errors import LimitExceededError, ValidationError

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
UNIQUE = UUID("12345678-1234-5678-1234-567812345678")


class Color(Enum):
    """An enum whose values are no texts."""

    RED = 1


class Size(StrEnum):
    """An enum whose values are texts."""

    SMALL = "s"


@dataclass
class Address:
    """A dataclass."""

    street: str
    lines: list[str] = field(default_factory=list)


@dataclass
class HomeAddress(Address):
    """A dataclass that stands for its base."""

    bell: str = ""


class Person(msgspec.Struct):
    """A struct, with itself inside."""

    name: str
    home: Address | None = None
    friends: list["Person"] = []


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: int


class Movie(TypedDict):
    """A dict with types."""

    title: str


VALUES: list[tuple[Any, Any]] = [
    (int, 1),
    (float, 1),
    (str, "ä\U0001f600"),
    (bool, True),
    (None, None),
    (bytes, b"\x00\xff"),
    (datetime, NOON),
    (date, NOON.date()),
    (timedelta, timedelta(hours=1, microseconds=1)),
    (UUID, UNIQUE),
    (Decimal, Decimal("0.10")),
    (Color, Color.RED),
    (Size, Size.SMALL),
    (Literal["a", "b"], "b"),
    (int | None, None),
    (int | str, "1"),
    (datetime | None, NOON),
    (Address, Address("High Street", ["2nd floor"])),
    (Address | None, Address("High Street")),
    (Person, Person("ann", Address("High Street"), [Person("bob")])),
    (Person | int, Person("ann")),
    (list[Person], [Person("ann")]),
    (dict[str, list[tuple[int, Address]]], {"a": [(1, Address("x"))]}),
    (dict[int, str], {1: "one"}),
    (dict[UUID, datetime], {UNIQUE: NOON}),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, ...], (1, 2)),
    (Point, Point(1, 2)),
    (Movie, {"title": "Solaris"}),
    (Any, {"anything": [1, None]}),
    (object, [1, "a"]),
    (Annotated[int, msgspec.Meta(gt=0)], 1),
]


@pytest.fixture
def bare() -> App:
    """An app that never opens its store."""
    return App("sqlite:///:memory:")


@pytest.mark.parametrize(("hint", "value"), VALUES)
def test_a_value_arrives_as_it_was_given(bare: App, hint: Any, value: Any) -> None:
    def echo(given, default=None):  # type: ignore[no-untyped-def]  # as somebody writes who knows no types
        return given

    echo.__annotations__ = {"given": hint, "default": hint, "return": hint}
    job = bare.job(echo)
    for call in (job.call(value), job.call(given=value, default=value)):
        arguments = job.signature.of_payload(call.payload)
        assert arguments["given"] == value
        assert type(arguments["given"]) is type(value) or hint is float
    assert job.signature.of_result(job.signature.to_result(value)) == value


@pytest.mark.parametrize(
    ("hint", "wrong"),
    [
        (int, "1"),
        (int, 1.5),
        (int, True),
        (int, None),
        (str, 1),
        (str, b"text"),
        (str, NOON),
        (str, UNIQUE),
        (list[str], [UNIQUE]),
        (dict[str, str], {"a": b"b"}),
        (bytes, "no base64!"),
        (datetime, "yesterday"),
        (UUID, "1234"),
        (Color, 2),
        (Size, "xxl"),
        (Literal["a"], "b"),
        (int | None, "1"),
        (float, Decimal("1.5")),
        (list[int], [1, "2"]),
        (Address, {"street": 1}),
        (Address, Address(1)),  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
        (Person, {"name": "ann", "home": {}}),
        (Annotated[int, msgspec.Meta(gt=0)], 0),
        (Any, object()),
        (Any, {(1, 2): "no text"}),
        (float, float("nan")),
        (Any, "\x00"),
        (int, 2**64),
    ],
)
def test_a_wrong_value_is_refused_before_a_store_is_asked(bare: App, hint: Any, wrong: Any) -> None:
    def echo(given):  # type: ignore[no-untyped-def]  # as somebody writes who knows no types
        return given

    echo.__annotations__ = {"given": hint}
    with pytest.raises(ValidationError):
        bare.job(echo).enqueue(wrong)
    bare.close()


def test_a_dict_will_do_for_a_type_and_a_subclass_for_its_base(bare: App) -> None:
    @bare.job
    def visit(person: Person, address: Address) -> None: ...

    call = visit.call({"name": "ann"}, HomeAddress("High Street", bell="ann"))  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
    assert visit.signature.of_payload(call.payload) == {"person": Person("ann"), "address": Address("High Street")}


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "missing a required argument: 'to'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        (("ann",), {"to": "bob"}, "multiple values for argument 'to'"),
        (("ann",), {"cc": "bob"}, "got an unexpected keyword argument 'cc'"),
        (("ann", 2), {"session": 1}, "each attempt makes its own 'session'"),
        (("ann", 2), {"ctx": 1}, "got an unexpected keyword argument 'ctx'"),
        ((1,), {}, r"Expected `str`, got `int` - at `\$.to`"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_and_says_why(bare: App, args: Any, kwargs: Any, why: str) -> None:
    @bare.job
    def send(ctx: SyncContext, to: str, copies: int = 1, *, session: object = Depends(object)) -> None: ...

    with pytest.raises(ValidationError, match=why) as refused:
        send.call(*args, **kwargs)
    assert "send cannot be called so" in str(refused.value)


def test_a_dependency_takes_its_place_among_the_arguments(bare: App) -> None:
    @bare.job
    def send(to: str, session: object = Depends(object), copies: int = 1) -> None: ...

    assert bytes(send.call("ann", copies=2).payload) == b'{"to":"ann","copies":2}'
    with pytest.raises(ValidationError, match="makes its own 'session'"):
        send.call("ann", 2)


def test_only_what_was_given_is_stored_so_that_defaults_may_change(bare: App) -> None:
    @bare.job
    def send(to: str, copies: int = 1, *, urgent: bool = False) -> None: ...

    assert bytes(send.call("ann").payload) == b'{"to":"ann"}'
    assert bytes(send.call("ann", urgent=True).payload) == b'{"to":"ann","urgent":true}'


def test_a_payload_has_its_limits(bare: App) -> None:
    @bare.job
    def send(to: str) -> None: ...

    with pytest.raises(LimitExceededError, match="payload has a length of"):
        send.enqueue("x" * 300_000)
    bare.close()


def test_every_kind_of_parameter_gets_its_argument(app: App) -> None:
    @app.job
    def plain(ctx: SyncContext, a: int, /, b: int = 2, c: int = 3, *, d: int, e: int = 5) -> list[int]:
        return [ctx.attempt, a, b, c, d, e]

    @app.job
    async def unplain(a: int, b: int = 2, /, *, c: int = 3) -> list[int]:
        return [a, b, c]

    first, second = plain.enqueue(10, c=30, d=40), plain.enqueue(10, 20, d=40, e=50)
    third, fourth = unplain.enqueue(1), unplain.enqueue(1, 20, c=30)
    app.run_worker(until_idle=True)
    assert (first.result(0), second.result(0)) == ([1, 10, 2, 30, 40, 5], [1, 10, 20, 3, 40, 50])
    assert (third.result(0), fourth.result(0)) == ([1, 2, 3], [1, 20, 30])


def test_typed_values_pass_through_a_store_and_back(app: App) -> None:
    @app.job
    def older(person: Person, at: datetime, *, by: Decimal | None = None) -> tuple[Person, datetime, Decimal | None]:
        assert type(person.home) is Address
        return person, at + timedelta(days=1), by

    handle = older.enqueue(Person("ann", Address("High Street")), NOON, by=Decimal("0.1"))
    app.run_worker(until_idle=True)
    assert handle.result(0) == (
        Person("ann", Address("High Street")), NOON + timedelta(days=1), Decimal("0.1"),
    )  # fmt: skip
