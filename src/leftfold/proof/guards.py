"""What must hold of a state that was never seen before, and of every refusal."""

from leftfold.core import commands as c
from leftfold.core.decide import apply
from leftfold.core.errors import (
    LeaseConflictError,
    LeftfoldError,
    RefusedError,
    RequestReusedError,
    RevisionConflictError,
)
from leftfold.core.job import Job, fold, logged
from leftfold.core.lifecycle import Who
from leftfold.core.record import GENESIS, link
from leftfold.core.values import CancelMode
from leftfold.proof.invariants import Problem, had_effect
from leftfold.proof.moves import CLIENT, Move, owner
from leftfold.proof.world import World


def check_refusal(world: World, move: Move, error: LeftfoldError) -> Problem:
    """Give what is wrong with a refusal: who holds the lease is never fenced off, who does not always is."""
    job, by = world.jobs[move.job], move.command.by
    if job is None or by.who is not Who.OWNER or not isinstance(error, RefusedError):
        return None
    holds = job.lease is not None and by.attempt == job.attempt
    if holds == isinstance(error, LeaseConflictError):
        return f"the fence: attempt {by.attempt} of {job.attempt}, a job that is {job.state}, got {error.code}"
    return None


def check_state(world: World, index: int) -> Problem:
    """Give what is wrong with a job that was never seen like this: its log, its fences, its requests."""
    job = world.jobs[index]
    if job is None:
        return None
    return _check_log(world, index, job) or _check_guards(world, index, job)


def _check_log(world: World, index: int, job: Job) -> Problem:
    folded = fold(world.logs[index])
    if folded is None or logged(folded) != logged(job):
        return f"the job is not the fold of its log: {folded} is not {job}"
    head = GENESIS
    for record in world.logs[index]:
        head = link(head, record)
    return None if head == world.heads[index] else "the hash chain is broken"


def _check_guards(world: World, index: int, job: Job) -> Problem:
    attempt = max(1, job.attempt)
    for half in (owner(index, 0, attempt, token_of=99), owner(index, 0, attempt + 1, token_of=attempt)):
        if not isinstance(refusal(job, c.Start(by=half), world.now), LeaseConflictError):
            return f"half a fence was enough: {half}"
    stale = c.Cancel(by=CLIENT, mode=CancelMode.HARD, expected_rev=job.rev - 1)
    if not isinstance(refusal(job, stale, world.now), RevisionConflictError):
        return "a command with a stale expected_rev was not refused"
    if world.asked is None or world.asked[0] != index:
        return None
    asked = world.asked[1]
    # A repeated claim is answered while its lease lasts; after that nobody may believe to hold it.
    over = isinstance(asked, c.Claim) and isinstance(refusal(job, asked, world.now), LeaseConflictError)
    if not over and had_effect(job, asked, world.now):
        return "a repeated request had a second effect, later"
    other = c.Cancel(by=CLIENT, reason="something else", request_id=asked.request_id)
    if not isinstance(refusal(job, other, world.now), RequestReusedError):
        return "a request_id served for another request"
    return None


def refusal(job: Job, command: c.AnyCommand, now: int) -> LeftfoldError | None:
    """Give why a command is refused, or None if it is not."""
    try:
        apply(job, command, now)
    except LeftfoldError as error:
        return error
    return None
