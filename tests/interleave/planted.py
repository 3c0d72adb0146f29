"""Planted bugs: each is put into the stores of the two sides, and the explorer must find a schedule that shows it.

The serial orders are those of a sound store; so a bug is caught wherever it shows, and most show only in between.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar

import pytest

from leftfold.core.decide import Forbidden
from leftfold.engine import running
from leftfold.store import audit, claiming, creating, ops
from leftfold.store.ops import Ask, Outcome
from leftfold.store.postgres import wire
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.postgres.wire import quoted
from leftfold.store.query import Operation, Steps, ids

T = TypeVar("T")
Patch = pytest.MonkeyPatch
_SOUND: Final = ops.carry_out


class Planted(NamedTuple):
    """A bug, in queries (of both sides' stores) or in code, and the pair that must show it."""

    name: str
    pair: tuple[str, str, str]
    queries: tuple[tuple[str, str, str], ...] = ()  # in this query, this text becomes that
    code: Callable[[Patch], None] | None = None
    settings: tuple[str, ...] = ()  # switched off in the sessions, where only an odd plan shows it
    alone: bool = False  # each schedule has the store to itself

    def plant(self, store: PostgresStore) -> None:
        for query, old, new in self.queries:
            assert store.queries[query].count(old) == 1, f"{query} no longer has this once: {old}"
            store.queries[query] = store.queries[query].replace(old, new.replace("{schema}", quoted(store.schema)))


def _no_holders(patch: Patch) -> None:
    def without_key(before: object, changed: object) -> Steps[set[str]]:
        yield from ()
        return set()

    patch.setattr(ops, "_without_key", without_key)


def _commit_by_statement(patch: Patch) -> None:
    """Let every query of a word about a job, or of a request, commit by itself."""

    def apart(steps: Any, *, apart: bool = False, reads: bool = False, rings: bool = False) -> Operation[Any]:
        return Operation(steps, apart=True, reads=reads)

    patch.setattr(running, "Operation", apart)
    patch.setattr(creating, "Operation", apart)


def _no_retry(patch: Patch) -> None:
    patch.setattr(wire, "_GIVE_WAY", frozenset())


def _load_before_the_lock(patch: Patch) -> None:
    """Decide on what was read before the lock was there."""

    def carry_out(asks: list[Ask], forbidden: Forbidden) -> Steps[list[Outcome]]:
        early = yield ids("load", sorted({ask.job_id for ask in asks}))
        steps = _SOUND(asks, forbidden)
        query, answer = next(steps), None
        try:
            while True:
                answer = early if query.name == "load" else (yield query)
                query = steps.send(answer)
        except StopIteration as done:
            outcomes: list[Outcome] = done.value
            return outcomes

    patch.setattr(ops, "carry_out", carry_out)


def _without_its_lock(module: ModuleType, name: str) -> Callable[[Patch], None]:
    """Let an operation that begins with a lock ask for what it goes by while nobody has locked it as yet."""
    sound = getattr(module, name)

    def steps(*asked: Any) -> Steps[Any]:
        begun = sound(*asked)
        assert next(begun).name == "lock"
        return (yield from _go_on(begun, []))

    return lambda patch: patch.setattr(module, name, steps)


def _go_on(steps: Steps[T], answer: Any) -> Steps[T]:
    """Send an answer, and all that come behind it."""
    try:
        while True:
            answer = yield steps.send(answer)
    except StopIteration as done:
        given: T = done.value
        return given


_BY_PLACES: Final = ") s WHERE j.ctid = s.place AND s.now = s.now + 0"
#: What a claim finds has no name as yet.
_NAMED: Final = ("claim", "SELECT k.ctid AS place,", "SELECT k.id, k.queue, k.ctid AS place,")
_BY_ID: Final = ") s WHERE j.id = s.id"
_LIMIT: Final = "        LIMIT %(limit)s"
_FENCE: Final = "j.attempt = a.by_attempt AND j.token IS NOT DISTINCT FROM a.by_token"
_LOCK: Final = "ORDER BY id FOR UPDATE"
#: What an UPDATE runs anew for every row that it looks at, finding another job each time.
_SUBQUERY: Final = (
    "SELECT i.id FROM {schema}.jobs i WHERE i.queue = s.queue AND i.due IS NOT NULL "
    "ORDER BY i.priority DESC, i.due, i.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
)
_NESTED_LOOPS: Final = ("enable_hashjoin", "enable_mergejoin", "enable_material", "enable_memoize", "enable_hashagg")

# fmt: off
BUGS: Final = (
    Planted("a row is not locked before it is decided on", ("cancel hard", "signal", "running"),
            (("lock", _LOCK, "ORDER BY id"),)),
    Planted("a renewal is lost, for nothing was locked", ("heartbeat", "heartbeat under a request", "running"),
            (("lock", _LOCK, "ORDER BY id"),)),
    Planted("a row follows its log from any version", ("heartbeat under a request", "release", "running"),
            (("lock", _LOCK, "ORDER BY id"),
             ("project", "WHERE k.id = a.id AND k.version = a.before OFFSET 0", "WHERE k.id = a.id OFFSET 0"))),
    Planted("an owner is asked for its lease before its row is written", ("complete", "cancel hard", "running"),
            (("own", "WHERE k.id = a.id OFFSET 0",
              "WHERE k.id = a.id AND k.attempt = a.attempt AND k.token = a.token OFFSET 0"),
             ("own", "WHERE j.ctid = a.place AND j.state = a.was AND", "WHERE j.id = a.id AND"),
             ("own", f"AND {_FENCE}\n      AND j.state = ANY",
              "AND a.was = ANY"))),
    Planted("an owner is not asked for its lease", ("claim next", "start", "queued"),
            (("own", _FENCE, "true"),)),
    Planted("a renewal is not asked for its lease", ("claim by id", "heartbeat", "queued"),
            (("renew", "k.attempt = a.attempt AND k.token IS NOT DISTINCT FROM a.token", "true"),)),
    Planted("a claim waits for a locked job", ("claim next", "cancel at a rev", "queued"),
            (("claim", "FOR UPDATE SKIP LOCKED", "FOR UPDATE"),)),
    Planted("a claim locks nothing", ("claim next", "claim next under a request", "queued"),
            (("claim", "        FOR UPDATE SKIP LOCKED\n", ""), ("claim", _BY_PLACES, _BY_ID), _NAMED)),
    Planted("a claim takes what a subquery finds", ("claim next", "claim by id", "both queued"),
            (("claim", f"{_LIMIT}\n        FOR UPDATE SKIP LOCKED\n    ) j\n    LIMIT %(limit)s", "    ) j"),
             ("claim", _BY_PLACES, f"{_BY_ID} AND j.id IN ({_SUBQUERY})"), _NAMED),
            settings=_NESTED_LOOPS),
    Planted("nobody asks who holds the key", ("receive", "reopen", "dead-lettered"),
            code=_no_holders),
    Planted("a request is remembered over the one that was faster",
            ("enqueue under a request", "enqueue under a request", "queued"),
            (("await_request", "pg_advisory_xact_lock", ""),
             ("remember", "ON CONFLICT DO NOTHING RETURNING",
              "ON CONFLICT (tenant, request_id) DO UPDATE SET response = EXCLUDED.response RETURNING"))),
    Planted("a job and its request are written in two transactions",
            ("enqueue under a request", "enqueue under a request", "queued"),
            code=_commit_by_statement),
    Planted("every statement about a job commits by itself", ("signal", "cancel hard", "parked"),
            code=_commit_by_statement),
    Planted("a job is decided on as it was before the lock", ("suspend", "signal", "running"),
            code=_load_before_the_lock),
    Planted("a claim asks for the queue before its job is locked",
            ("admit into a paused queue", "claim by id", "inbox"),
            code=_without_its_lock(claiming, "_claim_job")),
    Planted("a consumer passes over what is not committed yet", ("cancel hard", "consume", "followed"),
            (("feed_move", "target = %(target)s::pg_snapshot", "target = NULL"),
             ("feed_move", "SET rev = rev + 1, seen = %(seen)s::pg_snapshot",
              "SET rev = rev + 1, seen = (SELECT (x || ':' || x || ':')::pg_snapshot FROM pg_current_xact_id() x)"))),
    Planted("a claim on a trail waits for a locked job", ("claim next on its trail", "cancel hard", "due soon"),
            (("claim_on", "FOR UPDATE SKIP LOCKED", "FOR UPDATE"),)),
    Planted("a claim on a trail locks nothing",
            ("claim next on its trail", "claim next under a request", "both due soon"),
            (("claim_on", "        FOR UPDATE SKIP LOCKED\n", ""), ("claim_on", _BY_PLACES, _BY_ID),
             ("claim_on", *_NAMED[1:]))),
    Planted("a row is rebuilt as it was before somebody wrote it",
            ("rebuild what has drifted", "complete", "drifted and miscounted"),
            code=_without_its_lock(audit, "rebuild"), alone=True),
    Planted("a job is frozen as it was before somebody mended it",
            ("verify what has drifted", "cancel hard", "drifted"),
            code=_without_its_lock(audit, "freeze"), alone=True),
    Planted("two count anew at once",
            ("rebuild what has drifted", "rebuild what has drifted", "drifted and miscounted"),
            (("begin_maintenance", "pg_advisory_xact_lock", ""),), alone=True),
    Planted("who is in a deadlock is not run again",
            ("enqueue two, one of them after the job", "enqueue two, one of them after the job", "both dead-lettered"),
            code=_no_retry),
)
# fmt: on
