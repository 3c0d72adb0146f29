"""The commands: one frozen type per request, imperative. One that cannot be meant is refused when it is made."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.checks import CHECKS
from leftfold.core.errors import NotPermittedError, ValidationError
from leftfold.core.frozen import Frozen
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import Who
from leftfold.core.payload import NULL
from leftfold.core.retry import DEFAULT_POLICY, Policy
from leftfold.core.values import CancelMode, Failure, Outcomes, Spec, Wait, WaitFor


class Actor(Frozen):
    """Who speaks, under which name; an owner also shows its attempt and token."""

    who: Who
    name: str
    attempt: int = 0
    token: str = ""

    def __post_init__(self) -> None:
        limits.key("actor", self.name)
        if self.who is Who.OWNER:
            limits.between("attempt", self.attempt, 1, limits.FAILURES_MAX)
            limits.key("token", self.token)
        elif self.attempt or self.token:
            raise ValidationError(f"an owner shows its attempt and token, a {self.who} does not")


@lru_cache(maxsize=256)  # one claim is many jobs
def digest(token: str) -> str:
    """Give what the log keeps of a token."""
    return urlsafe_b64encode(sha256(token.encode()).digest()[:12]).decode()


#: What needs no check, wherever it stands; of an empty tuple there is one in Python.
_KNOWN: Final = frozenset(map(id, (DEFAULT_POLICY, NULL, ())))


@cache
def _checks_of(command: type["Command"]) -> tuple[tuple[str, Callable[[Any], None]], ...]:
    return tuple((field, CHECKS[field]) for field in command.__struct_fields__ if field in CHECKS)


class Command(Frozen):
    """A request about one job. The same `request_id` with the same arguments happens once."""

    wire: ClassVar[str]
    by: Actor
    request_id: str | None = None

    def __post_init__(self) -> None:
        for field, check in _checks_of(type(self)):
            value = getattr(self, field)
            if value is not None and id(value) not in _KNOWN:
                check(value)
        if getattr(self, "due", None) is not None and getattr(self, "delay", None) is not None:
            raise ValidationError("give a due time or a delay, not both")


class Creation(Command):
    """A command that makes the job it speaks of."""

    job_id: str
    spec: Spec


class OwnerCommand(Command):
    """A command for the holder of the lease alone."""


class SharedCommand(Command):
    """A command for others; `expected_rev` makes it fail if the job has moved on since it was read."""

    expected_rev: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expected_rev is not None and self.by.who is Who.OWNER:
            raise ValidationError("an owner is held to its attempt and token, and not to a rev")


class Receive(Creation):
    """Take a job in without admitting it."""

    wire = "receive"


class Enqueue(Creation):
    """Make a job that may be claimed once it is `due` (or after a `delay`, or now) and the jobs `after` have ended."""

    wire = "enqueue"
    policy: Policy = DEFAULT_POLICY
    due: int | None = None
    delay: int | None = None
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Of most jobs nothing else was said, and there are many of them: then these are all of the checks.
        is_timed = self.due is not None or self.delay is not None
        if is_timed or self.policy is not DEFAULT_POLICY or self.after != () or self.request_id is not None:
            super().__post_init__()
        else:
            CHECKS["job_id"](self.job_id)
            self.spec.check()


class Admit(SharedCommand):
    """Let a received job in, perhaps with a spec that the admission put in order."""

    wire = "admit"
    policy: Policy = DEFAULT_POLICY
    due: int | None = None
    delay: int | None = None
    spec: Spec | None = None


class Claim(Command):
    """Take a due job. `direct` means by its id, and may take a stalled one."""

    wire = "claim"
    token: str
    lease: int | None = None
    direct: bool = False


class Start(OwnerCommand):
    """Enter the handler."""

    wire = "start"


class Heartbeat(OwnerCommand):
    """Renew the lease."""

    wire = "heartbeat"
    lease: int | None = None


class Complete(OwnerCommand):
    """End the job with a result."""

    wire = "complete"
    result: Raw = NULL


class Fail(OwnerCommand):
    """End the attempt with an error; the policy decides what becomes of the job.

    `permanent` forbids another attempt, `delay` says how long to wait for it at least.
    """

    wire = "fail"
    error: Failure
    permanent: bool = False
    delay: int | None = None
    stage: Stage = Stage.EXEC
    reason_code: Reason | None = None


class Release(OwnerCommand):
    """Give the job back uncharged."""

    wire = "release"
    due: int | None = None
    delay: int | None = None
    reason: str | None = None


class Suspend(OwnerCommand):
    """Wait without holding the job. Does nothing if the wait's key has its answer already.

    A `timeout` counts from now, where the wait itself names no deadline.
    """

    wire = "suspend"
    wait: Wait
    timeout: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.timeout is not None and self.wait.deadline is not None:
            raise ValidationError("a wait has a deadline or a timeout, not both")
        if self.wait.until is WaitFor.TIMER and self.timeout is None and self.wait.deadline is None:
            raise ValidationError("a timer needs a deadline or a timeout")


class Note(SharedCommand):
    """Put a note on the log."""

    wire = "note"
    note: e.AnyNote

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.note, e.OperatorsNote) and self.by.who is not Who.OPERATOR:
            raise NotPermittedError(f"{self.note.wire!r} is not for a {self.by.who}, it is for an operator")


class Signal(SharedCommand):
    """Answer a wait, now or before it begins."""

    wire = "signal"
    key: str
    payload: Raw = NULL


class Expire(SharedCommand):
    """End a wait whose deadline has passed."""

    wire = "expire"


class Resume(SharedCommand):
    """End a wait for jobs that have all ended."""

    wire = "resume"
    outcomes: Outcomes


class Stall(SharedCommand):
    """Take a job away from an owner that let its lease run out, or that an operator no longer trusts."""

    wire = "stall"
    reason: str | None = None


class Requeue(SharedCommand):
    """Make a job claimable again; reopening a closed one needs a reason."""

    wire = "requeue"
    due: int | None = None
    delay: int | None = None
    reason: str | None = None


class Cancel(SharedCommand):
    """Stop a job: ask its owner, or end it at once. From the owner it says that the request was heeded."""

    wire = "cancel"
    mode: CancelMode = CancelMode.SOFT
    reason: str | None = None


class DeadLetter(SharedCommand):
    """Set a job aside."""

    wire = "dead_letter"
    error: Failure
    reason_code: Reason
    stage: Stage = Stage.EXEC


AnyCommand = (
    Receive | Enqueue | Admit | Claim | Start | Heartbeat | Complete | Fail | Release | Suspend | Note | Signal
    | Expire | Resume | Stall | Requeue | Cancel | DeadLetter
)  # fmt: skip


def fingerprint(command: AnyCommand) -> str:
    """Give the hash of what the command asks, by which a repeated `request_id` is compared.

    What equals its default is left out, so an argument that a later version adds changes nothing.
    """
    asked = _asked(command)
    for unrepeatable in ("token", "expected_rev", "job_id"):  # minted or read anew by every call, a repeated one too
        asked.pop(unrepeatable, None)
    return sha256(msgspec.json.encode([command.wire, asked], order="sorted")).hexdigest()[:32]


def _asked(value: Any) -> Any:
    match value:
        case Struct():
            fields = ((name, getattr(value, name), default) for name, default in _defaults(type(value)))
            asked = {name: _asked(field) for name, field, default in fields if field != default}
            return {"wire": value.wire, **asked} if isinstance(value, e.Event) else asked
        case dict():
            return {key: _asked(item) for key, item in value.items()}
        case tuple():
            return [_asked(item) for item in value]
        case _:
            return value


@cache
def _defaults(kind: type[Struct]) -> tuple[tuple[str, Any], ...]:
    fields = msgspec.structs.fields(kind)
    return tuple((each.name, {} if each.default_factory is dict else each.default) for each in fields)
