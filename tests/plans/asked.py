"""The very queries that the engine asks: a store that writes down what it is asked, and a day of an engine's life."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import pytest
from msgspec.structs import replace
from tests.plans.loading import ROWS

from leftfold import Engine
from leftfold.asking import NewJob
from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError, LeftfoldError
from leftfold.store import audit, feed
from leftfold.store.query import Columns, Operation, Query, Steps
from leftfold.store.sessions import Session

T = TypeVar("T")

#: The filters of a list, each by itself and then some together. Values that are common, rare, or not there.
LISTS: Final[dict[str, dict[str, Any]]] = {
    "everything": {},
    "a page later": {"after": "ffffffff-ffff-7fff-bfff-ffffffffffff"},
    "queue": {"queue": "default"},
    "kind": {"kind": "work"},
    "tenant": {"tenant": ""},
    "queue and kind": {"queue": "mail", "kind": "work"},
    "correlation id": {"correlation_id": "correlation 7"},
    "key": {"key": "key 7", "kind": "work", "tenant": ""},
    "owner": {"owner": "nobody"},
    "queued": {"states": ["queued"]},
    "running": {"states": ["claimed", "running"]},
    "waiting": {"states": ["waiting", "parked"]},
    "dead-lettered": {"states": ["failed", "dead_lettered"]},
    "succeeded": {"states": ["succeeded"]},
    "of an incident": {"states": ["dead_lettered"], "incident": "0123456789ab", "resolved": False},
}
INCIDENTS: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "of a kind": {"kind": "work", "queue": "mail", "tenant": ""},
    "one": {"incident": "0123", "resolved": None},
}


#: How many events are looked at in one go: to these tables, what it is to a few million events.
WINDOW: Final = ROWS // 100
#: An id in the middle of the copies.
MIDDLE: Final = "01000000-0000-7000-8000-000000000064"


class Listening:
    """A store, and what it was asked."""

    counts_grow = False
    sends_ahead = False

    def __init__(self, store: Session) -> None:
        self.dialect, self.heard = store.dialect, list[Query]()
        self._store = store

    def run(self, operation: Operation[T]) -> T:
        return self._store.run(replace(operation, steps=lambda: self._listen(operation.steps())))

    def run_within(self, connection: object, operation: Operation[T]) -> T:
        return self._store.run_within(connection, operation)

    def close(self) -> None:
        self._store.close()

    def _listen(self, steps: Steps[T]) -> Steps[T]:
        answer: list[Columns] | None = None
        while True:
            try:
                query = next(steps) if answer is None else steps.send(answer)
            except StopIteration as done:
                value: T = done.value
                return value
            self.heard.append(query)
            answer = yield query


class Asked(NamedTuple):
    """A query, and what it was asked for."""

    name: str
    query: Query

    def __str__(self) -> str:
        return self.name


def everything_asked(store: Session) -> Iterator[Asked]:
    """Give what a day of work and the lists ask of a store."""
    listening = Listening(store)
    engine = Engine(listening)
    for word, batch in (("few", 4), ("a thousand", 1_000)):
        listening.heard.clear()
        live(engine, word, batch)
        yield from distinct(listening.heard, word)
    listening.heard.clear()
    live_alone(engine)
    yield from distinct(listening.heard, "one")
    listening.heard.clear()
    live_apart(engine)
    yield from distinct(listening.heard, "nothing in common")
    for name, asked in LISTS.items():
        listening.heard.clear()
        engine.list(**asked)
        yield Asked(f"list, {name}", listening.heard[0])
    for name, asked in INCIDENTS.items():
        listening.heard.clear()
        with suppress(CorruptLogError):  # the copies have no events of their own
            engine.incidents(**asked)
        yield Asked(f"incidents, {name}", listening.heard[0])
    listening.heard.clear()
    fall_behind(engine)
    yield from distinct(listening.heard, "far behind")
    whole = audit.Selection()._asdict()
    pages: dict[str, dict[str, str | list[str] | None]] = {
        "first": {"after": None}, "later": {"after": MIDDLE}, "of some": {"ids": [MIDDLE]}
    }  # fmt: skip
    for name, page in pages.items():
        yield Asked(f"audit, {name} page", Query("audit", {"after": None, **whole, **page, "limit": 64}))


def live_alone(engine: Engine) -> None:
    """Say what has a form of its own for one job."""
    for key in (None, "alone"):
        job_id = engine.enqueue("work", queue="alone", key=key).job_id
        (claim,) = engine.claim("worker", job_id=job_id)
        engine.start(claim)
        engine.heartbeat(claim)
        engine.look_many([claim])
        engine.complete(claim)
        engine.enqueue("work", queue="alone", key=key)
        for claim in engine.claim("worker", queues=["alone"], kinds=["work"], request_id=f"claim {key}"):
            engine.start(claim)
            engine.complete(claim)


def live_apart(engine: Engine) -> None:
    """Say what is said in another way about jobs that have nothing in common."""
    for key in (None, "apart"):
        new = [NewJob("work", queue="apart", key=key and f"{key} {n}", tenant=f"tenant-{n}") for n in range(4)]
        engine.enqueue_many(new)
        claims = [engine.claim(f"worker-{n}", queues=["apart"])[0] for n in range(4)]
        engine.start_many(claims)
        engine.heartbeat_many(claims)
        engine.look_many(claims)
        engine.complete_many((claim, "done") for claim in claims)


def live(engine: Engine, word: str, batch: int) -> None:
    """Do everything that an engine does, with batches of this size."""
    new = [NewJob("work", queue=f"live {word}".replace(" ", "."), key=f"{word} {n}") for n in range(batch)]
    first = engine.enqueue_many(new)
    engine.enqueue_many(new, request_id=f"{word} again")
    engine.enqueue_many(new[:1], on_conflict="replace")
    ids = [receipt.job_id for receipt in first if receipt is not None]
    engine.enqueue("work", after=ids[1:3])
    received = engine.receive("work", key=f"{word} received").job_id
    engine.admit(received)
    engine.dead_letter(received, "beyond hope")
    engine.requeue(received, reason="mended")
    engine.claim("worker", job_id=received, request_id=f"{word} claim")
    for _ in range(3):  # the second one goes on where the first one left off
        engine.claim("worker", queues=[new[0].queue], limit=1)
    claims = engine.claim("worker", queues=[new[0].queue], limit=batch)
    assert claims, "nothing to go on with"
    engine.claim("worker", queues=["default"], kinds=["none"], limit=10)
    engine.claim("worker", kinds=["none"], limit=10, request_id=f"{word} none")
    engine.next_due()
    engine.next_due([new[0].queue, "default"])
    engine.beat("worker", {})
    engine.workers()
    engine.forget_worker("worker")
    engine.heartbeat_many(claims)
    engine.look_many(claims)
    engine.start_many(claims)
    engine.note_many([(claim, e.Progress(fraction=0.5)) for claim in claims])
    half = len(claims) // 2 + 1
    engine.complete_many([(claim, "done") for claim in claims[:half]])
    engine.suspend_many(claims[half:], "go")
    for claim in claims[half : half + 1]:
        engine.signal(claim.job_id, "go")
    _refused(lambda: engine.resume(received))
    engine.reap(limit=10)
    engine.get(received)
    engine.find(received)
    engine.counts()
    engine.feed("reader", start="now", limit=10)  # as one that is nearly up to date
    engine.enqueue("work")
    engine.acknowledge(engine.feed("reader", limit=10))
    engine.consumers()
    engine.forget_consumer("reader")
    engine.pause("nowhere")
    engine.unpause("nowhere")
    engine.queues()


def fall_behind(engine: Engine) -> None:
    """Read on where nearly all is new, and part of it was read already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "WINDOW", WINDOW)
        engine.acknowledge(engine.feed("late", limit=WINDOW))
        engine.acknowledge(engine.feed("late", limit=WINDOW))
        assert isinstance(engine.store, Listening)
        engine.store.heard.clear()
        page = engine.feed("late", limit=10)
        assert not page.caught_up, "it is not far behind"
        engine.consumers()
    engine.forget_consumer("late")


def _refused(call: Callable[[], object]) -> None:
    try:
        call()
    except LeftfoldError:
        return
    raise AssertionError("it was not refused")


def distinct(queries: list[Query], word: str) -> Iterator[Asked]:
    """Give one of each query of a day."""
    seen: set[str] = set()
    for query in queries:
        if query.name not in seen:
            seen.add(query.name)
            yield Asked(f"{query.name}, {word}", query)
