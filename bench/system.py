"""What a system is to the harness: a module in `bench/systems` with an `ABOUT` and five functions.

The module is read twice: by the harness, for its `ABOUT`, and by `bench.side` in an environment where the system is
installed. So its own imports of the system stand inside of its functions. Each of these may be `async`:

    prepare(url)                        make what the system needs, on an empty server or in an empty folder
    enqueue(url, numbers)               enqueue a job for each number, each durable before the next number is asked for
    enqueue_many(url, batches)          enqueue the jobs of each batch (a list of numbers) by the fastest way there is
    work(url, handler, concurrency)     run jobs until SIGTERM; `handler` is a function of `bench.handlers`
    finished(url)                       give how many jobs have ended, and will be found ended after a crash

`url` is a database of PostgreSQL or Redis, or a folder for systems that keep files.
"""

from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, Literal, NamedTuple, Protocol

from bench import systems

Server = Literal["postgres", "redis", "files"]
Role = Literal["ours", "peer", "limit", "bare queue"]  # only peers are what one could use instead of ours
Handler = Callable[[int], Any]  # a def, or an async one
ANY_HANDLER: Final = frozenset({"noop", "noop_sync", "nap", "long"})
OURS: Final = ("leftfold_postgres", "leftfold_sqlite")


class Promises(NamedTuple):
    """What the system keeps, by its own documentation: speed is nothing without it."""

    durability: str  # what a job that was enqueued survives
    history: str  # what is known of a job afterwards
    recovery: str  # what becomes of a job whose worker died


class About(NamedTuple):
    """What the harness needs to know before it runs a system."""

    title: str
    needs: tuple[str, ...]  # requirements, pinned; none means that the project's own environment has it
    server: Server
    promises: Promises
    pace: int  # no-op jobs per second, about: a round takes as many as fit into two seconds
    settings: str  # how it was set up, for the table
    concurrency: int = 100  # of a worker that drains no-op jobs
    python: tuple[int, int] = (3, 11)  # the oldest that runs it
    handlers: frozenset[str] = ANY_HANDLER  # which of `bench.handlers` it can run
    role: Role = "peer"

    @property
    def plainest(self) -> str:
        """Give the handler that costs the system the least."""
        return "noop" if "noop" in self.handlers else "noop_sync"


class System(Protocol):
    """A module of `bench/systems`."""

    ABOUT: About

    def prepare(self, url: str) -> Awaitable[None] | None: ...

    def enqueue(self, url: str, numbers: Iterable[int]) -> Awaitable[None] | None: ...

    def enqueue_many(self, url: str, batches: Iterable[list[int]]) -> Awaitable[None] | None: ...

    def work(self, url: str, handler: Handler, concurrency: int) -> Awaitable[None] | None: ...

    def finished(self, url: str) -> Awaitable[int] | int: ...


def load(name: str) -> System:
    """Give a system by the name of its module."""
    system: System = import_module(f"bench.systems.{name}")
    return system


def names() -> list[str]:
    """Give the names of all systems."""
    return sorted(module.name for module in iter_modules(systems.__path__))
