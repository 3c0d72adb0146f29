"""Say a command of the core through the engine's own methods."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from leftfold.asking import NewJob
from leftfold.core import commands as c
from leftfold.core.lifecycle import Who
from leftfold.core.retry import Policy
from leftfold.core.values import Spec
from leftfold.engine import Engine
from leftfold.store.creating import OnConflict
from leftfold.store.ops import Ask, Outcome
from leftfold.store.replies import Claim, Receipt
from leftfold.times import to_datetime


def span(micros: int | None) -> timedelta | None:
    """Give microseconds as a caller would."""
    return None if micros is None else timedelta(microseconds=micros)


def moment(due: int | None, delay: int | None) -> datetime | timedelta | None:
    """Give a moment, or a span from now, as a caller would."""
    return span(delay) if due is None else to_datetime(due)


def new_job(spec: Spec) -> NewJob:
    """Give a spec as a caller would."""
    return NewJob(
        spec.kind, spec.payload, spec.queue, spec.priority, key=spec.key, correlation_id=spec.correlation_id,
        cause=spec.cause, tenant=spec.tenant,
    )  # fmt: skip


def holder(job_id: str, by: c.Actor) -> Claim:
    """Give the claim that an owner shows."""
    return Claim(
        job_id=job_id, attempt=by.attempt, token=by.token, owner=by.name, until=0, failures=0, spec=Spec(kind="any"),
        policy=Policy(),
    )  # fmt: skip


def create(engine: Engine, commands: Sequence[c.Enqueue], on_conflict: OnConflict) -> list[Receipt | None]:
    """Enqueue; the engine finds ids of its own, and they must be the same."""
    jobs = [
        new_job(command.spec)._replace(
            due=moment(command.due, command.delay), after=command.after, policy=command.policy
        )
        for command in commands
    ]
    first = commands[0]
    return engine.enqueue_many(jobs, on_conflict=on_conflict, request_id=first.request_id, by=first.by)


def receive(engine: Engine, command: c.Receive, on_conflict: OnConflict) -> Receipt:
    """Take a job in."""
    spec = command.spec
    return engine.receive(
        spec.kind, spec.payload, queue=spec.queue, priority=spec.priority, key=spec.key, tenant=spec.tenant,
        correlation_id=spec.correlation_id, cause=spec.cause, request_id=command.request_id, by=command.by,
        on_conflict="raise" if on_conflict == "raise" else "return",
    )  # fmt: skip


def say(engine: Engine, job_id: str, command: c.AnyCommand) -> Receipt:
    """Say a command about a job that is there."""
    if command.by.who is Who.OWNER:
        return _as_owner(engine, holder(job_id, command.by), command)
    return _as_somebody(engine, job_id, command)


def _as_owner(engine: Engine, claim: Claim, command: c.AnyCommand) -> Receipt:
    common: dict[str, Any] = {"request_id": command.request_id}
    match command:
        case c.Start():
            return engine.start(claim, **common)
        case c.Heartbeat(lease=lease):
            return engine.heartbeat(claim, lease=span(lease), **common)
        case c.Complete(result=result):
            return engine.complete(claim, result, **common)
        case c.Fail(error=error, permanent=permanent, delay=delay, stage=stage, reason_code=reason):
            how: dict[str, Any] = {"permanent": permanent, "delay": span(delay), "stage": stage, "reason_code": reason}
            return engine.fail(claim, error, **how, **common)
        case c.Release(due=due, delay=delay, reason=reason):
            return engine.release(claim, due=moment(due, delay), reason=reason, **common)
        case c.Suspend(wait=wait, timeout=timeout):
            deadline = moment(wait.deadline, timeout)
            return engine.suspend(claim, wait.key, until=wait.until, deadline=deadline, jobs=wait.jobs, **common)
        case c.Note(note=note):
            return engine.note(claim, note, **common)
        case c.Cancel(reason=reason):
            return engine.cancel_claim(claim, reason=reason, **common)
        case c.DeadLetter(error=error, reason_code=reason, stage=stage):
            return engine.dead_letter(claim, error, reason_code=reason, stage=stage, **common)
        case _:
            raise TypeError(f"an owner has no method to {command.wire}")


def _as_somebody(engine: Engine, job_id: str, command: c.AnyCommand) -> Receipt:
    bare: dict[str, Any] = {"request_id": command.request_id, "by": command.by}
    common = {**bare, "expected_rev": getattr(command, "expected_rev", None)}
    match command:
        case c.Admit(policy=policy, due=due, delay=delay, spec=spec):
            job = None if spec is None else new_job(spec)
            return engine.admit(job_id, job=job, due=moment(due, delay), policy=policy, **common)
        case c.Note(note=note):
            return engine.note(job_id, note, **common)
        case c.Signal(key=key, payload=payload):
            return engine.signal(job_id, key, payload, **common)
        case c.Expire():
            return engine.expire(job_id, **bare)
        case c.Resume():
            return engine.resume(job_id, **bare)
        case c.Stall(reason=reason):
            return engine.stall(job_id, reason=reason, **common)
        case c.Requeue(due=due, delay=delay, reason=reason):
            return engine.requeue(job_id, due=moment(due, delay), reason=reason, **common)
        case c.Cancel(mode=mode, reason=reason):
            return engine.cancel(job_id, mode=mode, reason=reason, **common)
        case c.DeadLetter(error=error, reason_code=reason_code, stage=stage):
            return engine.dead_letter(job_id, error, reason_code=reason_code, stage=stage, **common)
        case _:
            raise TypeError(f"nobody but an owner has a method to {command.wire}")


def say_many(engine: Engine, asks: Sequence[Ask]) -> list[Outcome]:
    """Say the same kind of command about many jobs, by the method for many."""
    claims = [holder(ask.job_id, ask.command.by) for ask in asks]
    match asks[0].command:
        case c.Start():
            return engine.start_many(claims)
        case c.Heartbeat(lease=lease):
            return engine.heartbeat_many(claims, lease=span(lease))
        case c.Complete():
            return engine.complete_many(zip(claims, [ask.command.result for ask in asks], strict=True))  # type: ignore[union-attr]
        case c.Fail():
            return engine.fail_many(zip(claims, [ask.command.error for ask in asks], strict=True))  # type: ignore[union-attr]
        case c.Release(due=due, delay=delay, reason=reason):
            return engine.release_many(claims, due=moment(due, delay), reason=reason)
        case c.Suspend(wait=wait, timeout=timeout):
            deadline = moment(wait.deadline, timeout)
            return engine.suspend_many(claims, wait.key, until=wait.until, deadline=deadline, jobs=wait.jobs)
        case c.Note():
            return engine.note_many(zip(claims, [ask.command.note for ask in asks], strict=True))  # type: ignore[union-attr]
        case _ as command:
            raise TypeError(f"there is no method to {command.wire} many")
