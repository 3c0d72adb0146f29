"""The values that events and jobs are made of. Payloads stay the JSON text they came as."""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Raw

from leftfold.core import limits
from leftfold.core.errors import ValidationError
from leftfold.core.frozen import Frozen
from leftfold.core.payload import NULL, check_payload

#: The key under which a job finds how the jobs ended that it was enqueued after.
AFTER: Final = "after"


class Spec(Frozen):
    """What the client asked for: the part of a job that never changes after it was enqueued."""

    kind: str
    payload: Raw = NULL
    queue: str = "default"
    priority: int = 0
    key: str | None = None
    tenant: str = ""
    correlation_id: str | None = None
    cause: str | None = None

    def check(self) -> None:
        """Refuse what no store and no screen could carry."""
        try:
            _check_lane(self.kind, self.queue, self.tenant, self.priority)
        except TypeError:  # there is a list among them, perhaps, which no cache takes
            _check_lane.__wrapped__(self.kind, self.queue, self.tenant, self.priority)
        if self.key is not None:
            limits.key("key", self.key)
        if self.correlation_id is not None:
            limits.key("correlation_id", self.correlation_id)
        if self.cause is not None:
            limits.key("cause", self.cause)
        check_payload("payload", self.payload)


@lru_cache(maxsize=1024, typed=True)  # the same few come again and again
def _check_lane(kind: str, queue: str, tenant: str, priority: int) -> None:
    limits.name("kind", kind)
    limits.name("queue", queue)
    limits.name("tenant", tenant, empty=True)
    limits.between("priority", priority, -limits.PRIORITY_MAX, limits.PRIORITY_MAX)


class Failure(Frozen):
    """What went wrong, as kept on the log. `code` is the class of the error; it chooses the retry allowance."""

    code: str
    message: str = ""
    type: str | None = None
    traceback: str | None = None
    details: Raw = NULL

    def check(self) -> None:
        """Refuse a failure that no store could keep as it is."""
        limits.name("error code", self.code)
        limits.text("error message", self.message)
        limits.text("error type", self.type)
        limits.text("traceback", self.traceback)
        check_payload("error details", self.details)


class WaitFor(StrEnum):
    """What ends a wait."""

    SIGNAL = "signal"
    TIMER = "timer"
    JOBS = "jobs"


class Wait(Frozen):
    """What a suspended job waits for. `key` names it for the handler; the answer is kept under it.

    `not_before` is the due time that a job was enqueued with: a wait that ends sooner does not make it due sooner.
    """

    until: WaitFor
    key: str
    deadline: int | None = None
    jobs: tuple[str, ...] = ()
    not_before: int = 0

    def check(self) -> None:
        """Refuse a wait that nothing could end, or that says two things at once."""
        limits.name("wait key", self.key)
        limits.most("jobs waited for", self.jobs, limits.WAIT_JOBS_MAX)
        for job_id in self.jobs:
            limits.name("job id", job_id)
        limits.between("not_before", self.not_before, 0, limits.TIME_MAX)
        if self.deadline is not None:
            limits.between("deadline", self.deadline, 0, limits.TIME_MAX)
        if (self.until is WaitFor.JOBS) != bool(self.jobs):
            raise ValidationError("a wait for jobs names them, and no other wait does")


class Answer(Frozen):
    """What a wait key was answered with, a payload or the passing of its deadline, and what kind of wait it ends."""

    payload: Raw = NULL
    expired: bool = False
    until: WaitFor = WaitFor.SIGNAL


class CancelMode(StrEnum):
    """Soft: ask the owner to stop. Hard: take the job away at once."""

    SOFT = "soft"
    HARD = "hard"


Outcomes = Mapping[str, str]  # job id → the state in which it ended
