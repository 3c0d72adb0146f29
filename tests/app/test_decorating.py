"""What can be a job, and what is refused where it is written."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from leftfold import App, Context, Depends, SyncContext
from leftfold.core.errors import DesignError, LimitExceededError, ValidationError

if TYPE_CHECKING:
    from somewhere import Missing  # type: ignore[import-not-found]  # it is not there: that is the case


@pytest.fixture
def bare() -> App:
    """An app that never opens its store."""
    return App("sqlite:///:memory:")


class Mailer:
    """Not a function, and neither is what hangs on it."""

    def send(self, to: str) -> str:
        return to

    def __call__(self, to: str) -> str:
        return to


def numbers() -> Iterator[int]:
    yield 1


async def stream() -> AsyncIterator[int]:
    yield 1


def many(*args: int) -> None: ...
def named(**kwargs: int) -> None: ...
def unknown(missing: "Missing") -> None: ...
def unknown_result() -> "Missing": ...
def unknown_inside(what: "Mailer.Missing") -> None: ...  # type: ignore[name-defined]  # it is not there: that is the case
def unreadable(what: "not a type") -> None: ...  # type: ignore[valid-type] # noqa: F722  # it is not there: that is the case
def foreign(mailer: Mailer) -> None: ...
def foreign_inside(mailers: dict[str, list[Mailer]]) -> None: ...
def foreign_result() -> Mailer:
    return Mailer()


def lazy() -> Iterator[int]:
    return iter([1])


def late_context(n: int, ctx: Context) -> None: ...
def named_context(*, ctx: Context) -> None: ...
def maybe_context(ctx: SyncContext | None = None) -> None: ...
def two_contexts(ctx: SyncContext, other: Context) -> None: ...
def wrong_context(ctx: Context) -> None: ...
async def plain_context(ctx: SyncContext) -> None: ...


def test_a_factory_that_depends_on_others_is_refused(bare: App) -> None:
    def session() -> int:
        return 1

    def repository(inner: int = Depends(session)) -> int:
        return inner

    with pytest.raises(DesignError, match="depends on others itself"):
        Depends(repository)


def test_a_middleware_that_could_not_be_called_is_refused(bare: App) -> None:
    async def lonely(ctx: object) -> None: ...

    for wrong in ("a text", lonely):
        with pytest.raises(DesignError, match=r"must take \(ctx, call\)"):
            bare.middleware(wrong)  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too


def test_a_worker_inside_of_a_loop_is_told_how_to_run(bare: App) -> None:
    @bare.job
    def work() -> None: ...

    async def main() -> None:
        with pytest.raises(DesignError, match=r"await app.arun_worker"):
            bare.run_worker()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("mail", "no function"),
        (3, "no function"),
        (classmethod(lambda cls: cls), "no function"),
        (Mailer, "Mailer is a class"),
        (Mailer().send, "bound to an object"),
        (Mailer.send, "is a method: no worker has its self"),
        (Mailer(), "object that can be called"),
        (functools.partial(Mailer(), "ann"), "object that can be called"),
        (numbers, "numbers is a generator"),
        (stream, "stream is a generator"),
        (functools.partial(numbers), "is a generator"),
        (many, r"takes \*args: int"),
        (named, r"takes \*\*kwargs: int"),
        (unknown, "name 'Missing' is not defined; .* outside of `if TYPE_CHECKING:`"),
        (unknown_result, "name 'Missing' is not defined"),
        (unknown_inside, "has no attribute 'Missing'"),
        (unreadable, "annotations of unreadable cannot be read"),
        (foreign, "nobody knows how to read .*Mailer.*take a dataclass"),
        (foreign_inside, "nobody knows how to read .*Mailer"),
        (foreign_result, "nobody knows how to read .*Mailer"),
        (lazy, "nobody knows how to read .*Iterator"),
        (late_context, "the context is the first parameter"),
        (named_context, "the context is the first parameter"),
        (maybe_context, "the context is the first parameter"),
        (two_contexts, "the context is the first parameter"),
        (wrong_context, "the context of a def handler is a SyncContext"),
        (plain_context, "the context of an async def handler is a Context"),
        (lambda: None, "<lambda> needs a name="),
        (functools.partial(lazy), "nobody knows"),
    ],
)
def test_what_could_never_run_is_refused_at_once(bare: App, function: Any, why: str) -> None:
    with pytest.raises(DesignError, match=why):
        bare.job(function)
    assert not bare.handlers


def test_a_job_is_not_made_a_job_again(bare: App) -> None:
    @bare.job
    def send() -> None: ...

    with pytest.raises(DesignError, match="<handler of 'send'> is a job already"):
        bare.job(send)
    App("sqlite:///:memory:").job(send.function)


def test_two_jobs_of_one_name_are_refused_and_the_first_stays(bare: App) -> None:
    @bare.job
    def send() -> None: ...

    @bare.job(name="mail.send")
    def other() -> None: ...

    with pytest.raises(DesignError, match=r"two jobs called 'mail\.send'"):
        bare.job(name="mail.send")(lambda: None)
    assert bare.handlers == {"send": send, "mail.send": other}
    assert bare.handler("send") is send
    with pytest.raises(ValidationError, match=r"no job called 'sent': it has mail\.send, send"):
        bare.handler("sent")


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return around


def test_decorated_partial_and_static_functions_are_functions(bare: App) -> None:
    @bare.job
    @logged
    def scaled(n: int, by: int = 2) -> int:
        return n * by

    class Space:
        @staticmethod
        @bare.job
        def static(n: int) -> int:
            return n

    tripled = bare.job(name="tripled")(functools.partial(scaled.function, by=3))
    cached = bare.job(name="cached")(functools.lru_cache(Space.static.function))
    assert (scaled(2), tripled(2), Space.static(2)) == (4, 6, 2)
    assert bytes(scaled.call(n=2).payload) == b'{"n":2}'
    assert bytes(tripled.call(2).payload) == b'{"n":2}'
    for wrong in (scaled, tripled, cached):
        with pytest.raises(ValidationError, match="Expected `int`, got `str`"):
            wrong.call("two")


def test_a_name_is_as_names_are(bare: App) -> None:
    with pytest.raises(DesignError, match="needs a name=: name 'two words' is not a name"):
        bare.job(name="two words")(lambda: None)
    with pytest.raises(DesignError, match="needs a name=: name '' is not a name"):
        bare.job(functools.partial(len, [1]))


def test_never_is_a_result_that_a_handler_may_promise(bare: App) -> None:
    @bare.job
    def fails() -> NoReturn:
        raise RuntimeError

    assert bytes(fails.call().payload) == b"{}"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"name": 3}, "name must be a text"),
        ({"queue": "two words"}, "queue 'two words' is not a name"),
        ({"priority": "P9"}, "priority 'P9' must be"),
        ({"max_failures": 0}, "max_failures is 0"),
        ({"max_failures": "3"}, "max_failures must be a whole number"),
        ({"retry_delay": "soon"}, "retry_delay must be seconds or a timedelta"),
        ({"retries": [KeyError]}, "retries is a mapping"),
        ({"lease": 0}, r"lease is 0 s, it must lie between 0.1 s and 86400 s"),
        ({"retry_delay": -1}, "backoff base is -1 s"),
        ({"retry_delay_max": -1}, "backoff cap is -1 s"),
        ({"lease": 0}, "lease is 0"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout must be seconds"),
        ({"on_exhausted": "explode"}, "on_exhausted 'explode' is none of dead_letter, fail"),
        ({"retries": {"ConnectionError": 3}}, "'ConnectionError' is no class of exceptions"),
        ({"retries": {int: 3}}, "<class 'int'> is no class of exceptions"),
        ({"retries": {ConnectionError: -1}}, "retries of ConnectionError is -1"),
        ({"retries": {ConnectionError: "3"}}, "retries of ConnectionError must be a whole number"),
        ({"retries": {ConnectionError: [1, -1]}}, "delay of ConnectionError is -1 s"),
        ({"retries": {ConnectionError: [1, "soon"]}}, "retries of ConnectionError must be seconds"),
        ({"retries": {ConnectionError: [1] * 1001}}, "number of retries of ConnectionError is 1001"),
        ({"retries": {ValidationError: 3}}, "ValidationError says by itself"),
        ({"retries": {LimitExceededError: 3}}, "LimitExceededError says by itself"),
    ],
)
def test_settings_that_could_never_work_are_refused(bare: App, settings: Any, why: str) -> None:
    with pytest.raises((ValidationError, DesignError), match=why):
        bare.job(**settings)(lambda: None)
    assert not bare.handlers


def test_a_factory_is_called_without_arguments() -> None:
    with pytest.raises(DesignError, match="is no factory"):
        Depends(Mailer().send("ann"))  # type: ignore[call-overload]  # whatever it is given
    with pytest.raises(DesignError, match="missing a required argument: 'to'"):
        Depends(Mailer().send)  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too


def test_a_lifespan_is_a_context_manager() -> None:
    async def lifespan(app: App) -> AsyncIterator[None]:
        yield

    with pytest.raises(DesignError, match="asynccontextmanager"):
        App("sqlite:///:memory:", lifespan=lifespan)  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too


def test_an_app_says_where_it_is_without_its_password() -> None:
    app = App("postgresql://ann:secret@localhost/jobs")
    assert "secret" not in repr(app)
    assert "0 kinds of jobs" in repr(app)
    with pytest.raises(ValidationError):
        App("mysql://localhost/jobs")
