"""What must hold of every move that is accepted, whatever happened before.

The expectations are spelled out here a second time, in the words of the seeds, and not looked up in the tables
that they guard: a wrong row would otherwise prove itself right.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import Applied, apply
from leftfold.core.errors import LeftfoldError
from leftfold.core.job import Job, evolve
from leftfold.core.letters import REQUIRED
from leftfold.core.lifecycle import Edge, State, Who
from leftfold.core.record import Record
from leftfold.core.values import CancelMode

S = State
_OVER: Final = {S.SUCCEEDED, S.CANCELLED, S.FAILED, S.DEAD_LETTERED}


class Step(NamedTuple):
    """One record, with the job before and after it."""

    before: Job | None
    record: Record
    after: Job


class Taken(NamedTuple):
    """One accepted move: the job before it, the command, what it did, and that record by record."""

    before: Job | None
    command: c.AnyCommand
    applied: Applied
    now: int
    steps: tuple[Step, ...]

    @property
    def after(self) -> Job:
        """Give the job after the move."""
        return self.applied.job


def taken(before: Job | None, command: c.AnyCommand, applied: Applied, now: int) -> Taken:
    """Give an accepted move as the invariants look at it."""
    steps = []
    job = before
    for record in applied.records:
        after = applied.job if record is applied.records[-1] else evolve(job, record)
        steps.append(Step(job, record, after))
        job = after
    return Taken(before, command, applied, now, tuple(steps))


Problem = str | None

# --- seed 003: shapes, attempt, rev, idempotent retries ----------------------------------------------

_CARRIES: Final = {
    "due": {S.QUEUED, S.RETRYING},
    "lease": {S.CLAIMED, S.RUNNING},
    "wait": {S.WAITING, S.PARKED},
    "result": {S.SUCCEEDED},
    "error": {S.RETRYING, S.FAILED, S.DEAD_LETTERED},
}


def shapes(move: Taken) -> Problem:
    """A job carries what its state requires, and nothing that it forbids."""
    after = move.after
    for field, states in _CARRIES.items():
        if (getattr(after, field) is not None) != (after.state in states):
            return f"a job that is {after.state} has {field}={getattr(after, field)}"
    return None


def attempt_counts_claims(move: Taken) -> Problem:
    """The attempt starts at 0, grows by one with a claim, and never otherwise."""
    claims = sum(isinstance(step.record.event, e.Claimed) for step in move.steps)
    before = move.before.attempt if move.before else 0
    if move.after.attempt != before + claims:
        return f"attempt went from {before} to {move.after.attempt} with {claims} claims"
    return None


def rev_moves_with_every_mutation(move: Taken) -> Problem:
    """Version counts the records, and rev rises with every accepted mutation, renewals among them."""
    before, after = move.before, move.after
    version, rev = (before.version, before.rev) if before else (0, 0)
    if after.version != version + len(move.steps):
        return f"version went from {version} to {after.version} with {len(move.steps)} records"
    if (after != before) != (after.rev > rev):
        return f"rev went from {rev} to {after.rev}, and the job from {before} to {after}"
    return None


def a_request_happens_once(plain: Taken, asked: Taken) -> Problem:
    """A request_id changes nothing of what a command does, and the same request again does nothing."""
    done = [(step.record.event, step.record.who, step.record.at) for step in asked.steps]
    if done != [(step.record.event, step.record.who, step.record.at) for step in plain.steps]:
        return "a request_id made a difference"
    if replace(asked.after, requests={}, renewed_under={}) != replace(plain.after, requests={}, renewed_under={}):
        return "a request_id made another job"
    again = had_effect(asked.after, asked.command, asked.now)
    return "a_request_happens_once: the same request_id had a second effect" if again else None


def requests_are_remembered(move: Taken) -> Problem:
    """A request that was answered stays known, so that its repetition finds it however late it comes."""
    before = move.before.requests if move.before else {}
    forgotten = [name for name, asked in before.items() if move.after.requests.get(name) != asked]
    return f"the request {forgotten[0]!r} was forgotten" if forgotten else None


def had_effect(job: Job, command: c.AnyCommand, now: int) -> bool:
    """Tell whether a command changes the job, or is refused: what the repetition of an accepted one must not be."""
    try:
        return apply(job, command, now) != Applied(job, ())
    except LeftfoldError:
        return True


# --- seed 002: one owner, one event per transition, dead letters --------------------------------------


def only_the_holder_writes_as_owner(move: Taken) -> Problem:
    """What an owner has written carries the attempt and the token of the lease of that moment."""
    by, before = move.command.by, move.before
    if by.who is not Who.OWNER or move.after == before:
        return None
    lease = before.lease if before else None
    if before is None or lease is None or (by.attempt, c.digest(by.token)) != (before.attempt, lease.token):
        return f"a write of attempt {by.attempt} was accepted"
    return None


def keepers_do_not_rob(move: Taken) -> Problem:
    """A keeper does not take a job away while its lease runs."""
    lease = move.before.lease if move.before else None
    if lease is None or move.after.lease is not None or move.command.by.who is not Who.KEEPER:
        return None
    return "a keeper took a job whose lease still ran" if lease.until > move.now else None


def one_event_per_transition(step: Step) -> Problem:
    """Each transition is one event in order; a note moves nothing."""
    before, record, after = step
    if record.version != after.version or (before is not None and after.version != before.version + 1):
        return f"record {record.version} made version {after.version}"
    moved = before is None or before.state is not after.state
    requeued_in_place = isinstance(record.event, e.Requeued) and after.state is S.QUEUED
    if isinstance(record.event, e.Transition) != moved and not requeued_in_place:
        return f"{record.event.wire} led from {before and before.state} to {after.state}"
    return None


def attempts_never_go_back(step: Step) -> Problem:
    """(attempt, phase) never falls."""
    before, record, after = step
    if before is None or isinstance(record.event, e.Note):
        return None
    if (after.attempt, _PHASE.get(after.state, 3)) < (before.attempt, _PHASE.get(before.state, 3)):
        return f"{record.event.wire} took attempt {before.attempt} back from {before.state} to {after.state}"
    return None


_PHASE: Final = {S.CLAIMED: 1, S.RUNNING: 2}


def leases_are_new(step: Step) -> Problem:
    """A claim takes a due job that nobody holds, and its token differs from the one before."""
    before, record, after = step
    if before is None or not isinstance(record.event, e.Claimed):
        return None
    if before.lease is not None:
        return "a job was claimed that somebody holds"
    if before.due is not None and before.due > record.at:
        return "a job was claimed before it was due"
    if before.last_lease is not None and after.lease is not None and before.last_lease.token == after.lease.token:
        return "two attempts share a token"
    return None


def the_budget_holds(step: Step) -> Problem:
    """Nobody but an operator brings back a job whose budget for that class of errors is spent."""
    before, record, after = step
    retried = isinstance(record.event, e.Retried)
    lost = isinstance(record.event, e.Requeued) and before is not None and before.state is S.STALLED
    if record.who is Who.OPERATOR or not (retried or lost):
        return None
    code = record.event.error.code if isinstance(record.event, e.Retried) else "lease_expired"
    own = after.policy.by_error.get(code)
    used = after.tally.get(code, 0) if own else after.failures - sum(after.tally.values())
    budget = own.max_failures if own else after.policy.max_failures
    if budget is not None and used >= budget:
        return f"{record.event.wire} with {used} of {budget} failures"
    return None


def dead_letters_are_complete(step: Step) -> Problem:
    """A dead letter carries every field that is required, and says what the job says."""
    before, record, _ = step
    letter = record.event
    if not isinstance(letter, e.DeadLettered) or before is None:
        return None
    if any(f'"{field}":' not in record.data for field in (*REQUIRED, "stage")):
        return f"the stored letter lacks a field: {record.data}"
    owned = before.attempt > 0
    if letter.attempts != before.attempt or owned != (letter.last_owner is not None):
        return f"the letter says {letter.attempts} attempts, last owner {letter.last_owner}"
    if owned != (letter.last_lease_expires_at is not None):
        return "the letter does not say when the last lease ended"
    return None


# --- seed 000 §5 --------------------------------------------------------------------------------------


def ended_means_ended(step: Step) -> Problem:
    """§5.1 as decided: final accepts nothing; closed an operator's notes and reopening, with a reason."""
    before, record, _ = step
    if before is None or before.state not in _OVER:
        return None
    by_operator = before.state in {S.FAILED, S.DEAD_LETTERED} and record.who is Who.OPERATOR
    reopened = isinstance(record.event, e.Requeued) and bool(record.event.reason)
    if not by_operator or not (reopened or isinstance(record.event, e.Note)):
        return f"{record.event.wire} by {record.who} after {before.state}"
    return None


_LAST: Final[Mapping[State, type[e.Event]]] = {
    S.WAITING: e.Suspended,  # §5.2
    S.PARKED: e.Parked,
    S.CLAIMED: e.Claimed,  # §5.3: Leased is Running there
    S.RUNNING: e.Started,
}


def states_have_their_event(step: Step) -> Problem:
    """§5.2 and §5.3: a job is waiting or running because its last transition says so."""
    event, state = step.record.event, step.after.state
    if isinstance(event, e.Transition) and state in _LAST and type(event) is not _LAST[state]:
        return f"{state} after {event.wire}"
    return None


def blocked_jobs_are_not_reclaimed(step: Step) -> Problem:
    """§5.4: a blocked job is resumed, cancelled or set aside; nobody polls a parked one."""
    before, record, _ = step
    if before is None or before.state not in {S.WAITING, S.PARKED} or isinstance(record.event, e.Note):
        return None
    if not isinstance(record.event, e.Resumed | e.Cancelled | e.DeadLettered):
        return f"{record.event.wire} on a job that is {before.state}"
    if isinstance(record.event, e.Resumed) and before.state is S.PARKED and record.who is not Who.CLIENT:
        return f"a parked job was resumed by a {record.who}"
    return None


# --- ours ---------------------------------------------------------------------------------------------

_BRINGS_BACK: Final = (e.Retried, e.Released, e.Suspended, e.Parked, e.Requeued)


def cancellation_is_heeded(step: Step) -> Problem:
    """Once cancellation is requested, no owner or keeper brings the job back. Success still wins."""
    before, record, _ = step
    if before is None or before.cancel_requested_at is None or record.who is Who.OPERATOR:
        return None
    if isinstance(record.event, _BRINGS_BACK):
        return f"{record.event.wire} after the cancellation was requested"
    return None


def a_soft_cancellation_asks(move: Taken) -> Problem:
    """A soft cancellation leaves the job to its owner."""
    command = move.command
    if not isinstance(command, c.Cancel) or command.mode is CancelMode.HARD or command.by.who is Who.OWNER:
        return None
    taken_away = move.before is not None and move.before.lease is not None and move.after.lease is None
    return "a soft cancellation took the job from its owner" if taken_away else None


def answers_stand(move: Taken) -> Problem:
    """A key is answered once: signal and deadline have one winner, and no wait begins on an answered key."""
    after = move.after
    reopened = move.before is not None and move.before.state in _OVER
    for key, answer in move.before.answers.items() if move.before else ():
        if after.answers.get(key) != answer and not (reopened and answer.expired):
            return f"the answer to {key!r} changed"
    if after.wait is not None and after.wait.key in after.answers:
        return f"a job waits for {after.wait.key!r}, which is answered"
    return None


def a_wait_ends_as_it_should(step: Step) -> Problem:
    """A wait expires after its deadline and not before; else its signal, or the end of every job it names, ends it."""
    before, record, _ = step
    event = record.event
    if not isinstance(event, e.Resumed) or before is None or before.wait is None:
        return None
    wait = before.wait
    if event.key != wait.key:
        return f"a wait for {wait.key!r} was ended by {event.key!r}"
    if event.expired:
        return "a wait expired before its deadline" if wait.deadline is None or wait.deadline > record.at else None
    if wait.until == "timer" or set(wait.jobs) != set(event.outcomes):
        return f"a wait for {wait.until} {wait.jobs} was ended by {dict(event.outcomes) or 'a signal'}"
    return None


def time_does_not_fall(step: Step) -> Problem:
    """A record is no older than the one before it."""
    before, record, after = step
    if after.updated_at != record.at or (before is not None and record.at < before.updated_at):
        return f"record {record.version} is dated {record.at}"
    return None


ON_MOVES: Final[tuple[Callable[[Taken], Problem], ...]] = (
    shapes,
    attempt_counts_claims,
    rev_moves_with_every_mutation,
    requests_are_remembered,
    only_the_holder_writes_as_owner,
    keepers_do_not_rob,
    a_soft_cancellation_asks,
    answers_stand,
)

ON_STEPS: Final[tuple[Callable[[Step], Problem], ...]] = (
    one_event_per_transition,
    attempts_never_go_back,
    leases_are_new,
    the_budget_holds,
    dead_letters_are_complete,
    ended_means_ended,
    states_have_their_event,
    blocked_jobs_are_not_reclaimed,
    cancellation_is_heeded,
    a_wait_ends_as_it_should,
    time_does_not_fall,
)


def check_move(move: Taken) -> Problem:
    """Give the first thing that is wrong with an accepted move."""
    for on_move in ON_MOVES:
        problem = on_move(move)
        if problem:
            return f"{on_move.__name__}: {problem}"
    for step in move.steps:
        for on_step in ON_STEPS:
            problem = on_step(step)
            if problem:
                return f"{on_step.__name__}: {problem}"
    return None


def edges(taken: Taken) -> Iterator[Edge]:
    """Give the edges of the lifecycle that a move took."""
    for before, record, after in taken.steps:
        if isinstance(record.event, e.Transition):
            yield Edge(before.state if before else None, type(record.event), after.state)
