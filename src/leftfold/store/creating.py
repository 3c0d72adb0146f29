"""Operations that make jobs. A key is unique among the live jobs of a tenant and kind; the index holds it to that."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeGuard

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import Applied, Forbidden, apply
from leftfold.core.errors import KeyTakenError, LeftfoldError, RevisionConflictError
from leftfold.core.lifecycle import TARGETS, Edge, State, Who
from leftfold.core.record import GENESIS, encode, said
from leftfold.core.retry import DEFAULT_POLICY
from leftfold.core.values import Spec
from leftfold.store.entries import ENQUEUE_COLUMNS
from leftfold.store.ops import EVENT_COLUMNS, Ask, carry_out, check_there, event_rows, head_of, receipt_of
from leftfold.store.query import Again, Operation, Query, Steps, Value
from leftfold.store.replies import Receipt
from leftfold.store.requests import Request, once
from leftfold.store.rows import COLUMNS, row_of

#: What to do if a live job holds the key: give that job, raise, give None, or put the new job in its place.
OnConflict = Literal["return", "raise", "skip", "replace"]

Creation = c.Enqueue | c.Receive

#: `replace` cancels what nobody works on: a job that was never claimed, or that waits for its (next) claim.
_REPLACEABLE: Final = (State.INBOX, State.QUEUED, State.RETRYING)
#: Nobody else is quick. Before Python 3.12, a function of Python's looks for a member of an enum, and for its value.
_CLIENT: Final = Who.CLIENT
_CLIENTS: Final = Who.CLIENT.value
_ENQUEUING: Final = Edge(None, e.Enqueued, TARGETS[e.Enqueued])
_TRIES: Final = 5
#: How many new jobs are sent to a store at once where it can be sent more meanwhile.
PART: Final = 200
_PREFIX: Final = len('{"due":0,')
#: Stands for a payload: no JSON has it, for there a NUL is escaped.
_HOLE: Final = Raw(b"\x00")
_OWN: Final = ("id", "rest")


def create(
    commands: Sequence[Creation], on_conflict: OnConflict, request: Request | None, forbidden: Forbidden
) -> Operation[list[Receipt | None]]:
    """Make jobs, or find those that hold their keys. Answers in the order of the commands; all by one actor."""
    if request is None and is_quick(commands[0].by, forbidden):
        free = [command for command in commands if _is_plain(command) and command.spec.key is None]
        if len(free) == len(commands):  # nothing can stand in their way, and one statement is all there is to it
            return Operation(lambda: _enqueue_free(free), apart=True, rings=True)
    return Operation(
        lambda: once(
            request,
            lambda: _create(commands, on_conflict, forbidden),
            lambda receipts: receipts,
            _remembered,
        ),
        rings=True,
    )


def create_free(parts: Callable[[], Iterable[Sequence[c.Enqueue]]]) -> Operation[list[Receipt | None]]:
    """Make jobs that nothing can stand in the way of, part by part: while one is written, the next is made ready."""
    return Operation(lambda: _enqueue_parts(parts()), blind=True, rings=True)


def _enqueue_parts(parts: Iterable[Sequence[c.Enqueue]]) -> Steps[list[Receipt | None]]:
    receipts: list[Receipt | None] = []
    for part in parts:
        receipts += yield from _enqueue_free(part)
    return receipts


def _remembered(response: bytes) -> Steps[list[Receipt | None]]:
    yield from ()
    return msgspec.json.decode(response, type=list[Receipt | None])


def _enqueue_free(commands: Sequence[c.Enqueue]) -> Steps[list[Receipt | None]]:
    yield _enqueue_query("enqueue", commands)
    return [made(command.job_id) for command in commands]


def _is_plain(command: Creation) -> TypeGuard[c.Enqueue]:
    return isinstance(command, c.Enqueue) and not command.after


class Mold(NamedTuple):
    """What jobs have in common that differ in id and payload alone: what stands around a payload, and columns."""

    front: str
    back: str
    columns: Mapping[str, Value]
    actor: str


def mold_of(command: c.Enqueue) -> Mold:
    """Give the mold of jobs like this one."""
    row = enqueue_row(command, replace(command.spec, payload=_HOLE), words_of(command.by))
    columns = dict(zip(ENQUEUE_COLUMNS, row, strict=True))
    del columns["id"]
    front, back = str(columns.pop("rest")).split("\x00")
    return Mold(front, back, columns, command.by.name)


def create_plain(mold: Mold, job_id: str, payload: str) -> Operation[Receipt]:
    """Make one job that nothing can stand in the way of."""
    return Operation(lambda: _enqueue_plain(mold, job_id, payload), apart=True, rings=True)


def _enqueue_plain(mold: Mold, job_id: str, payload: str) -> Steps[Receipt]:
    front, back, columns, actor = mold
    yield Query("enqueue", {"actor": actor, "request_id": None}, _OWN, ((job_id, front + payload + back),), columns)
    return made(job_id)


def _create(commands: Sequence[Creation], on_conflict: OnConflict, forbidden: Forbidden) -> Steps[list[Receipt | None]]:
    receipts: dict[str, Receipt | None] = {}
    missed = list(commands)
    if any(command.spec.key is not None for command in missed):
        missed.sort(key=_in_order)
    firsts: dict[tuple[str, str, str | None], Creation] = {}
    if on_conflict == "replace":
        firsts = {_key_of(command.spec): command for command in reversed(missed)}
        replaced = _replaced_by_their_own(missed)
        receipts.update((yield from _insert_replaced(replaced, forbidden)))
        missed = [command for command in missed if command.job_id not in receipts]
    for _ in range(_TRIES):
        receipts.update((yield from _insert(missed, forbidden)))
        missed = [command for command in missed if command.job_id not in receipts]
        if not missed:
            return [receipts[command.job_id] for command in commands]
        holders = yield from _holders(missed)
        if on_conflict == "replace":
            yield from _make_room([firsts[_key_of(command.spec)] for command in missed], holders, forbidden)
        else:
            for command in missed:
                holder = holders.get(_key_of(command.spec))
                if holder is not None:  # else it ended meanwhile, and the key is free
                    receipts[command.job_id] = _settle(command, holder, on_conflict)
            missed = [command for command in missed if command.job_id not in receipts]
            if not missed:
                return [receipts[command.job_id] for command in commands]
    raise Again


def _insert(commands: Sequence[Creation], forbidden: Forbidden) -> Steps[dict[str, Receipt]]:
    """Give the receipts of those that could be made."""
    quick = is_quick(commands[0].by, forbidden)
    plain = [command for command in commands if _is_plain(command)] if quick else []
    receipts = (yield from _enqueue(plain)) if plain else {}
    if len(plain) < len(commands):
        others = [command for command in commands if not (quick and _is_plain(command))]
        receipts.update((yield from _decide_and_insert(others, forbidden)))
    return receipts


def is_quick(by: c.Actor, forbidden: Forbidden) -> bool:
    """Tell whether the short statements will do: who may not enqueue is told so by `decide`."""
    return by.who is _CLIENT and (not forbidden or _ENQUEUING not in forbidden)


def _enqueue(commands: Sequence[c.Enqueue]) -> Steps[dict[str, Receipt]]:
    """Make jobs with the statements that read the clock, seal, insert and append by themselves."""
    found: list[str] = []
    free = [command for command in commands if command.spec.key is None]
    if free:
        yield _enqueue_query("enqueue", free)
        found += [command.job_id for command in free]
    if len(free) < len(commands):
        keyed = [command for command in commands if command.spec.key is not None]
        found += [job_id for (job_id,) in (yield _enqueue_query("enqueue_keyed", keyed))]
    return {job_id: made(job_id) for job_id in found}


def made(job_id: str) -> Receipt:
    """Give the receipt of a new job."""
    return Receipt(job_id=job_id, state=_ENQUEUING.target, version=1, rev=1, attempt=0)


def _enqueue_query(name: str, commands: Sequence[c.Enqueue]) -> Query:
    by, request_id = commands[0].by, commands[0].request_id
    rows: list[Sequence[Value]] = []
    words = words_of(by)
    request_hash = None
    for command in commands:
        if request_id is not None:
            request_hash = c.fingerprint(command)
            words = words_of(by, request_id, request_hash)
        rows.append(enqueue_row(command, command.spec, words, request_hash))
    return Query(name, {"actor": by.name, "request_id": request_id}, ENQUEUE_COLUMNS, rows)


def words_of(by: c.Actor, *request: str | None) -> str:
    """Give who says that a job was enqueued, as its hash covers it."""
    return said(e.Enqueued.wire, _CLIENTS, by.name, *request)


def enqueue_row(command: c.Enqueue, spec: Spec, words: str, request_hash: str | None = None) -> Sequence[Value]:
    """Give a new job as the statements take it."""
    # The store says in front of it when the job is due, if that is later than its clock says.
    rest = encode(e.Enqueued(due=0, policy=command.policy, spec=spec))[_PREFIX:]
    lease = None if command.policy.lease == DEFAULT_POLICY.lease else command.policy.lease
    return (
        command.job_id, command.due, command.delay, rest, words, spec.tenant, spec.kind, spec.queue, spec.priority,
        spec.key, spec.correlation_id, lease, request_hash,
    )  # fmt: skip


def _decide_and_insert(commands: Sequence[Creation], forbidden: Forbidden) -> Steps[dict[str, Receipt]]:
    """Make jobs as `decide` says: those that are only received, and those that wait for others."""
    ((now,),) = yield Query("clock")
    yield from _check_afters(commands)
    return (yield from _insert_applied([apply(None, command, now, forbidden) for command in commands]))


def _check_afters(commands: Sequence[Creation]) -> Steps[None]:
    yield from check_there([after for command in commands if isinstance(command, c.Enqueue) for after in command.after])


def _insert_applied(applied: Sequence[Applied]) -> Steps[dict[str, Receipt]]:
    rows = [row_of(job, records, head_of(GENESIS, records)) for job, records in applied]
    made = {row[0] for row in (yield Query("insert", columns=COLUMNS, rows=rows))}
    inserted = [each for each in applied if each.job.id in made]
    events = [row for each in inserted for row in event_rows(each.records, GENESIS)]
    if events:
        yield Query("append", columns=EVENT_COLUMNS, rows=events)
    return {each.job.id: receipt_of(each.job, changed=True) for each in inserted}


def _replaced_by_their_own(commands: Sequence[Creation]) -> list[tuple[Creation, Creation]]:
    """Give the commands, in order, whose key another one of the same batch wants next, each with that one."""
    return [
        (one, other) for one, other in pairwise(commands) if one.spec.key and _key_of(one.spec) == _key_of(other.spec)
    ]


def _insert_replaced(pairs: Sequence[tuple[Creation, Creation]], forbidden: Forbidden) -> Steps[dict[str, Receipt]]:
    """Make jobs that are replaced at once, with both events: one after the other would take a round for each."""
    if not pairs:
        return {}
    ((now,),) = yield Query("clock")
    yield from _check_afters([command for command, _ in pairs])
    applied = []
    for command, successor in pairs:
        made = apply(None, command, now, forbidden)
        ended = apply(made.job, _cancel_for(successor), now, forbidden)
        applied.append(Applied(ended.job, made.records + ended.records))
    return (yield from _insert_applied(applied))


def _cancel_for(successor: Creation, expected_rev: int | None = None) -> c.Cancel:
    return c.Cancel(by=successor.by, reason=f"replaced by {successor.job_id}", expected_rev=expected_rev)


def _in_order(command: Creation) -> tuple[str, str, str]:
    """Give the order in which everybody takes keys: two batches in opposite orders would wait for each other."""
    return command.spec.tenant, command.spec.kind, command.spec.key or ""


def _key_of(spec: Spec) -> tuple[str, str, str | None]:
    return spec.tenant, spec.kind, spec.key


def _holders(commands: Sequence[Creation]) -> Steps[dict[tuple[str, str, str | None], Receipt]]:
    keys = sorted({(command.spec.tenant, command.spec.kind, command.spec.key or "") for command in commands})
    rows = yield Query("holders", columns=("tenant", "kind", "key"), rows=keys)
    return {
        (tenant, kind, key): Receipt(
            job_id=job_id, state=State(state), version=version, rev=version + renewals, attempt=attempt, changed=False
        )
        for job_id, tenant, kind, key, state, version, renewals, attempt in rows
    }


def _settle(command: Creation, holder: Receipt, on_conflict: OnConflict) -> Receipt | None:
    if on_conflict == "raise":
        raise _taken(command, holder)
    return None if on_conflict == "skip" else holder


def _taken(command: Creation, holder: Receipt) -> KeyTakenError:
    key, kind = command.spec.key, command.spec.kind
    return KeyTakenError(f"key {key!r} of {kind!r} is held by job {holder.job_id}, which is {holder.state}")


def _make_room(
    commands: Sequence[Creation], holders: dict[tuple[str, str, str | None], Receipt], forbidden: Forbidden
) -> Steps[None]:
    """Cancel the jobs that hold the keys, or raise: what somebody works on is not replaced."""
    asks: list[Ask] = []
    for command in commands:
        holder = holders.get(_key_of(command.spec))
        if holder is None:
            continue  # it ended meanwhile, and the key is free
        if holder.state not in _REPLACEABLE and holder.attempt:
            raise _taken(command, holder)
        # The rev makes sure that nobody claims it between our look and our cancellation.
        asks.append(Ask(holder.job_id, _cancel_for(command, holder.rev)))
    for outcome in (yield from carry_out(asks, forbidden)) if asks else ():
        if isinstance(outcome, RevisionConflictError):
            raise Again from outcome
        if isinstance(outcome, LeftfoldError):
            raise outcome
