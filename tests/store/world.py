"""Three worlds that must never differ: a file, a schema, and the pure core. Every step is taken in all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self, TypeVar
from unittest.mock import patch

from msgspec import Raw
from msgspec.structs import replace
from tests.store import speaking
from tests.store.model import Model, Wish
from tests.store.sides import PostgresSide, Side, SqliteSide, events, others, rows, same_ids

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden
from leftfold.core.errors import LeftfoldError
from leftfold.core.job import Job, evolve, fold, logged
from leftfold.core.lifecycle import Edge, Who
from leftfold.core.record import Record
from leftfold.core.retry import Policy
from leftfold.core.values import Spec
from leftfold.engine import Engine
from leftfold.engine.running import one
from leftfold.store import claiming
from leftfold.store.creating import OnConflict
from leftfold.store.ops import EVENT_COLUMNS, Ask
from leftfold.store.query import Operation, Query
from leftfold.store.replies import Claim, Receipt
from leftfold.store.rows import COLUMNS
from leftfold.testing.clock import FakeClock

CLIENT = c.Actor(who=Who.CLIENT, name="ann")
KEEPER = c.Actor(who=Who.KEEPER, name="keeper")
OPERATOR = c.Actor(who=Who.OPERATOR, name="olga")


#: Of a large batch, so many jobs are read one by one.
SOME = 10

C = TypeVar("C", bound=c.AnyCommand)


class Place(NamedTuple):
    """Where the stores of a test may be: a folder, a server, a schema of the test's own."""

    folder: Path
    url: str
    schema: str


def told(call: Callable[[], Any]) -> Any:
    """Give what a call gave, or the type of the error that it raised."""
    try:
        answer = call()
    except LeftfoldError as refusal:
        return type(refusal)
    if isinstance(answer, list):
        return [type(each) if isinstance(each, LeftfoldError) else each for each in answer]
    return answer


def spelled(command: C) -> C:
    """Spell payloads out, as the engine does: the text of a default that is left out would be another one."""
    changes: dict[str, Any] = {}
    for name in command.__struct_fields__:
        match getattr(command, name):
            case Raw() as payload:
                changes[name] = Raw(bytes(payload))
            case Spec() as spec:
                changes[name] = replace(spec, payload=Raw(bytes(spec.payload)))
            case _:
                pass
    return replace(command, **changes)


class World:
    """Both stores and the model, on one clock."""

    def __init__(
        self, place: Place, forbidden: Forbidden = NOTHING_FORBIDDEN, hear: Callable[[str], object] = lambda _: None
    ) -> None:
        self.clock = FakeClock()
        self._hear = hear
        self._checks = True
        self.model = Model(self.clock, forbidden)
        self._ids = same_ids(self.clock)
        self._tokens = 0
        self._stack = ExitStack()
        self._stack.enter_context(patch.object(claiming, "new_token", lambda: self.last_token))
        folder = self._stack.enter_context(TemporaryDirectory(dir=place.folder))
        lite = SqliteSide(Path(folder) / "jobs.db", self.clock, forbidden)
        self._stack.callback(lite.close)
        post = PostgresSide(place.url, place.schema, self.clock, forbidden)
        self._stack.callback(post.close)
        self.sides: tuple[Side, ...] = (lite, post)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    @property
    def last_token(self) -> str:
        """Give the token of the last claim."""
        return f"token-{self._tokens}"

    # --- steps --------------------------------------------------------------------------------------------------------

    def step(self, expected: Callable[[], Any], call: Callable[[Engine], Any], *job_ids: str) -> Any:
        """Do the same everywhere, and compare everything. Gives the answer, or the type of the error."""
        wanted = told(expected)
        self._hear(f"  at {self.clock()}: {wanted}")
        for side in self.sides:
            given = told(partial(call, side.engine))
            assert given == wanted, f"{side.name} gave {given}, not {wanted}"
        self.check(job_ids)
        return wanted

    def tell(self, job_id: str, command: c.AnyCommand) -> Receipt | type[LeftfoldError]:
        """Say a command about a job."""
        if isinstance(command, c.Resume):
            command = replace(command, outcomes=self.model.outcomes(job_id, command.request_id))
        command = spelled(command)
        self._hear(f"{command} about {job_id}")
        answer: Receipt | type[LeftfoldError] = self.step(
            lambda: self.model.tell(job_id, command), lambda engine: speaking.say(engine, job_id, command), job_id
        )
        return answer

    def tell_many(self, asks: Sequence[Ask]) -> list[Receipt | type[LeftfoldError]]:
        """Say the same kind of command about many jobs."""
        asks = [Ask(ask.job_id, spelled(ask.command)) for ask in asks]
        self._hear(f"{asks}")
        answer: list[Receipt | type[LeftfoldError]] = self.step(
            lambda: self.model.tell_many(asks), lambda engine: speaking.say_many(engine, asks)
        )
        return answer

    def new_ids(self, count: int) -> list[str]:
        """Give the ids that every engine will give next; to be used by the very next call."""
        return self._ids.make(count)

    def enqueue(
        self, specs: Sequence[Spec], on_conflict: OnConflict = "return", by: c.Actor = CLIENT, **asked: Any
    ) -> Any:
        """Make jobs. Gives a list of receipts, or the type of the error."""
        ids = self.new_ids(len(specs))
        jobs = zip(ids, specs, strict=True)
        commands = [c.Enqueue(by=by, job_id=id_, spec=spec, **asked) for id_, spec in jobs]
        return self.create(commands, on_conflict)

    def create(self, commands: Sequence[c.Enqueue], on_conflict: OnConflict) -> Any:
        """Make jobs whose ids are the next ones."""
        commands = [spelled(command) for command in commands]
        self._hear(f"{commands} {on_conflict=}")
        return self.step(
            lambda: self.model.create(commands, on_conflict),
            lambda engine: speaking.create(engine, commands, on_conflict),
            *[command.job_id for command in commands[:SOME]],
        )

    def receive(self, spec: Spec, on_conflict: OnConflict = "return", request_id: str | None = None) -> Any:
        """Take a job in. Gives its receipt, or the type of the error."""
        (id_,) = self.new_ids(1)
        command = spelled(c.Receive(by=CLIENT, job_id=id_, spec=spec, request_id=request_id))
        self._hear(f"{command} {on_conflict=}")
        return self.step(
            lambda: self.model.create([command], on_conflict)[0],
            lambda engine: speaking.receive(engine, command, on_conflict),
            id_,
        )

    def claim(self, owner: str, job_id: str | None = None, **asked: Any) -> list[Claim]:
        """Claim what is due, or one job; gives the claims, none if it was refused."""
        self._tokens += 1
        wish = Wish(owner, self.last_token, **asked)
        self._hear(f"{wish} of {job_id}")
        expected = told(lambda: self.model.claim_job(job_id, wish) if job_id else self.model.claim(wish))

        def ask(engine: Engine) -> list[Claim]:
            return engine.claim(
                owner, queues=wish.queues, kinds=wish.kinds, limit=wish.limit, lease=speaking.span(wish.lease),
                job_id=job_id, request_id=wish.request_id,
            )  # fmt: skip

        lite, post = (told(partial(ask, side.engine)) for side in self.sides)
        assert lite == post
        assert self._as_known(lite) == self._as_known(expected)
        self.check([claim.job_id for claim in lite] if isinstance(lite, list) else ())
        return lite if isinstance(lite, list) else []

    def _as_known(self, claims: Any) -> Any:
        """Leave out of claims that are over what only a lease has."""
        if not isinstance(claims, list):
            return claims
        return [
            claim if self.model.holds(claim) else replace(claim, until=0, failures=0, lost=False) for claim in claims
        ]

    def pause(self, queue: str, *, paused: bool) -> None:
        """Pause a queue, or let it go on."""

        def expected() -> bool:
            changes = (queue in self.model.paused) != paused
            (self.model.paused.add if paused else self.model.paused.discard)(queue)
            return changes

        self.step(expected, lambda engine: engine.pause(queue, by="olga") if paused else engine.unpause(queue))

    def reopen(self) -> None:
        """Close both stores and open them again."""
        for side in self.sides:
            side.reopen()
        self.check(self.model.logs)

    def fold_counts(self) -> None:
        """Let the counters be folded, as every engine does now and then."""
        for side in self.sides:
            side.engine.store.run(Operation(lambda: one("fold_counts", {"limit": 1000}), apart=True))
        self.check()

    def load(self, logs: Iterable[tuple[Job, Sequence[Record]]]) -> None:
        """Put whole logs into the stores, as if they had been written there."""
        ids = []
        for job, records in logs:
            self.model.adopt(job, records)
            ids.append(job.id)
        job_rows = [tuple(self.model.row(job_id)) for job_id in ids]
        event_columns = [row for job_id in ids for row in self.model.events(job_id)]

        def steps() -> Any:
            yield Query("insert", columns=COLUMNS, rows=job_rows)
            yield Query("append", columns=EVENT_COLUMNS, rows=event_columns)

        for side in self.sides:
            side.engine.store.run(Operation(steps))

    # --- agreement ----------------------------------------------------------------------------------------------------

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Let many steps pass before the next comparison; answers are compared all the same."""
        self._checks = False
        try:
            yield
        finally:
            self._checks = True

    def check(self, job_ids: Iterable[str] = ()) -> None:
        """Compare the stores with the model: rows, events and counts, and these jobs as the engine gives them."""
        if not self._checks:
            return
        wanted_rows = {job_id: self.model.row(job_id) for job_id in sorted(self.model.logs)}
        wanted_events = {job_id: self.model.events(job_id) for job_id in wanted_rows}
        counts = self.model.counts()
        asked = [job_id for job_id in job_ids if job_id in self.model.logs]
        for side in self.sides:
            if (found := rows(side)) != wanted_rows:
                same(f"rows of {side.name}", found, wanted_rows)
            if (logs := events(side)) != wanted_events:
                same(f"events of {side.name}", logs, wanted_events)
            assert side.engine.counts() == counts, side.name
            for job_id in asked:
                self._check_job(side.engine, job_id)
        lite, post = map(others, self.sides)
        assert lite == post

    def _check_job(self, engine: Engine, job_id: str) -> None:
        """Compare a job as the engine gives it with what its log comes to."""
        log, job = self.model.logs[job_id], engine.get(job_id)
        folded = fold(log.records)
        assert folded is not None
        assert logged(job) == logged(log.job) == logged(folded)
        assert engine.history(job_id) == list(log.records)
        beside = [(each.lease, each.renewals, each.rev, each.renewed_under) for each in (job, log.job)]
        assert beside[0] == beside[1]
        if job.lease is None and job.last_lease is not None and log.job.last_lease is not None:
            assert job.last_lease.until == log.job.last_lease.until


def same(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Say how two jobs differ, not only that they do."""
    for job_id in sorted({*found, *wanted}):
        one_side, other = found.get(job_id, ()), wanted.get(job_id, ())
        names = getattr(other, "_fields", range(1, len(other) + 1))
        for name, is_so, should_be in zip_longest(names, one_side, other):
            assert is_so == should_be, f"{what}: {job_id} has {name} {is_so}, not {should_be}"


def single(world: World, spec: Spec | None = None, policy: Policy | None = None, **asked: Any) -> str:
    """Make one job and give its id."""
    (receipt,) = world.enqueue([spec or Spec(kind="report")], policy=policy or Policy(), **asked)
    assert isinstance(receipt, Receipt)
    return receipt.job_id


def edges_of(records: Iterable[Record]) -> tuple[Edge, ...]:
    """Give the edges that a log took."""
    job: Job | None = None
    taken = []
    for record in records:
        state = job.state if job else None
        job = evolve(job, record)
        if isinstance(record.event, e.Transition):
            taken.append(Edge(state, type(record.event), job.state))
    return tuple(taken)
