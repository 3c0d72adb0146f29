"""Every error that Leftfold raises, each with a code that never changes.

LeftfoldError
├── DesignError               the program contradicts itself; raised before any job runs
├── JobError                  raised by a handler to say how its failure is to be treated
│   ├── ValidationError       the input is wrong, and stays wrong: never retried
│   │   └── LimitExceededError
│   ├── TransientError        worth another attempt
│   │   └── Retry             after so many seconds
│   ├── PermanentError        not worth another attempt
│   └── WaitExpired           raised in a handler: nobody answered what it waits for in time
├── OutcomeError              raised to who waits for a job's result
│   ├── JobFailed
│   ├── JobCancelled
│   └── ResultTimeoutError    it has not ended yet
├── NoCurrentJobError         `current_job()` outside of any job
├── RefusedError              the command may not happen now; nothing was written
│   ├── JobNotFoundError
│   ├── JobExistsError
│   ├── KeyTakenError         another live job holds the key
│   ├── JobFrozenError        `verify` found that it cannot be as it says
│   ├── QueuePausedError      nobody claims from the queue now
│   ├── IllegalTransitionError
│   │   └── JobEndedError
│   ├── NotPermittedError     somebody else may do that
│   ├── DialectRefusedError   the enforced dialect has no such move
│   ├── NotDueError           too early
│   ├── LeaseConflictError    the caller does not hold the lease
│   ├── RevisionConflictError
│   ├── RequestReusedError
│   ├── SignalConflictError
│   └── FeedConflictError     somebody else reads for the same consumer
├── CorruptLogError           a log that no sequence of commands can have written
│   └── BrokenChainError
└── StoreError                the database, not the job
    ├── StoreUnavailableError it cannot be reached or is too busy: try again
    │   └── StoreDeniedError  it does not let us in
    ├── StoreNotReadyError    it holds no tables of ours, older or newer ones
    ├── OutcomeUnknownError   the reply was lost: it may have happened
    └── MissingExtraError     a package that this store needs is not installed

ValidationError serves both sides: bad arguments to a command, and a handler's verdict on its input.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from leftfold.core.values import Failure


class LeftfoldError(Exception):
    """Base of everything that Leftfold raises."""

    code: ClassVar[str] = "error"


class DesignError(LeftfoldError):
    """The program contradicts itself: its tables, or the functions that are to be jobs."""

    code = "design"


class JobError(LeftfoldError):
    """How a handler says what its failure means."""

    code = "job_error"


class ValidationError(JobError):
    """The input is wrong and will be wrong again."""

    code = "validation_failed"


class LimitExceededError(ValidationError):
    """A bound of `leftfold.core.limits` was passed."""

    code = "limit_exceeded"


class TransientError(JobError):
    """The failure may pass: try again."""

    code = "transient"


class PermanentError(JobError):
    """The failure will not pass: do not try again."""

    code = "permanent"


class Retry(TransientError):  # noqa: N818 - what a handler says, more than what went wrong
    """Raised by a handler: this attempt failed, the next one shall not begin before `after` seconds."""

    code = "retry"

    def __init__(self, message: str = "tried again on request", *, after: float) -> None:
        super().__init__(message)
        self.after = after


class Snooze(Exception):  # noqa: N818 - no error: nothing is charged for it
    """Raised by a handler: not now. The job is given back, and is due again after so many seconds."""

    def __init__(self, seconds: float, reason: str | None = None) -> None:
        super().__init__(reason or "snoozed")
        self.seconds = seconds
        self.reason = reason


class WaitExpired(JobError):  # noqa: N818 - what a handler may expect, more than an error
    """Raised in a handler: nobody answered what it waits for in time. Not caught, it ends the job."""

    code = "wait_expired"


class OutcomeError(LeftfoldError):
    """The result that somebody waits for will not come, or has not yet."""

    code = "outcome"


class JobFailed(OutcomeError):  # noqa: N818 - an outcome of the job, no error of the caller
    """The job failed, or was set aside: `state` says which, `error` why."""

    code = "job_failed"

    def __init__(self, job_id: str, state: str, error: "Failure | None") -> None:
        why = f": {error.type or error.code}: {error.message}" if error else ""
        super().__init__(f"job {job_id} is {state}{why}")
        self.job_id = job_id
        self.state = state
        self.error = error


class JobCancelled(OutcomeError):  # noqa: N818 - the same
    """The job was cancelled."""

    code = "job_cancelled"


class ResultTimeoutError(OutcomeError, TimeoutError):
    """The job has not ended within the time that somebody would wait. It goes on."""

    code = "result_timeout"


class NoCurrentJobError(LeftfoldError):
    """Somebody asked for the current job where none runs."""

    code = "no_current_job"


class RefusedError(LeftfoldError):
    """The command may not happen now. Nothing was written."""

    code = "refused"


class JobNotFoundError(RefusedError):
    """There is no such job."""

    code = "job_not_found"


class JobExistsError(RefusedError):
    """A job with this id is there already."""

    code = "job_exists"


class KeyTakenError(RefusedError):
    """Another live job of the same tenant and kind holds the key."""

    code = "key_taken"


class JobFrozenError(RefusedError):
    """What the job's log and row say cannot be true. Nobody touches it until an operator has settled that."""

    code = "job_frozen"


class QueuePausedError(RefusedError):
    """The job's queue is paused: nobody claims from it."""

    code = "queue_paused"


class IllegalTransitionError(RefusedError):
    """The lifecycle has no such move from the job's state."""

    code = "illegal_transition"


class JobEndedError(IllegalTransitionError):
    """The job is final or closed and accepts nothing of the kind."""

    code = "job_ended"


class NotPermittedError(RefusedError):
    """The move exists, but it is not this caller's to make."""

    code = "not_permitted"


class DialectRefusedError(RefusedError):
    """The enforced dialect lacks every move that would answer the command."""

    code = "dialect_refused"


class NotDueError(RefusedError):
    """The moment for it has not come: the job is not due, or its lease or wait still runs."""

    code = "not_due"


class LeaseConflictError(RefusedError):
    """The caller's (attempt, token) is not the job's lease. Stop working on it."""

    code = "lease_conflict"


class RevisionConflictError(RefusedError):
    """The job has moved on since `expected_rev` was read. Read it again and decide anew."""

    code = "revision_conflict"


class RequestReusedError(RefusedError):
    """The `request_id` was used before, for something else."""

    code = "request_reused"


class SignalConflictError(RefusedError):
    """The key was answered otherwise before, or the job waits for another key."""

    code = "signal_conflict"


class FeedConflictError(RefusedError):
    """The consumer has gone on since the page was read. Read again: what is new comes then."""

    code = "feed_conflict"


class CorruptLogError(LeftfoldError):
    """The log holds what no sequence of commands can have written. The job is to be frozen, not repaired."""

    code = "corrupt_log"


class BrokenChainError(CorruptLogError):
    """A record does not carry the hash that its content and its predecessor give."""

    code = "broken_chain"


class StoreError(LeftfoldError):
    """The database said no, for a reason that is not the job's."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The database cannot be reached, or is too busy. Nothing was written: try again."""

    code = "store_unavailable"


class StoreDeniedError(StoreUnavailableError):
    """The database does not let this user in."""

    code = "store_denied"


class StoreNotReadyError(StoreError):
    """The database holds no tables of ours, older ones, or newer ones than this version knows."""

    code = "store_not_ready"


class OutcomeUnknownError(StoreError):
    """The connection broke while it was committed: it may have happened.

    Call again with the same `request_id`: that settles it.
    """

    code = "outcome_unknown"


class MissingExtraError(StoreError):
    """A package that this store needs is not installed."""

    code = "missing_extra"
