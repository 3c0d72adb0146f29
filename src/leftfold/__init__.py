"""Leftfold: a durable job engine. A job's state is the left fold of its events."""

from typing import TYPE_CHECKING, Any, Final

from leftfold.asking import NewJob
from leftfold.core import errors
from leftfold.core.commands import Actor
from leftfold.core.errors import (
    JobCancelled,
    JobFailed,
    PermanentError,
    Retry,
    Snooze,
    TransientError,
    ValidationError,
    WaitExpired,
)
from leftfold.core.job import Job
from leftfold.core.record import Record
from leftfold.core.retry import Allowance, Backoff, Policy
from leftfold.core.values import Failure
from leftfold.engine import Engine
from leftfold.opening import aopen, migrate, open  # noqa: A004 - leftfold.open reads as it should
from leftfold.store.audit import Finding
from leftfold.store.export import Imported
from leftfold.store.feed import Consumer, FeedPage
from leftfold.store.replies import Claim, Count, Page, Queue, Receipt, Summary, Verdict, WorkerView

if TYPE_CHECKING:
    from leftfold.aengine import AsyncEngine
    from leftfold.app import App, Call, Context, CurrentJob, Depends, Handle, Handler, SyncContext, current_job
    from leftfold.worker import Worker

__all__ = [
    "Actor",
    "Allowance",
    "App",
    "AsyncEngine",
    "Backoff",
    "Call",
    "Claim",
    "Consumer",
    "Context",
    "Count",
    "CurrentJob",
    "Depends",
    "Engine",
    "Failure",
    "FeedPage",
    "Finding",
    "Handle",
    "Handler",
    "Imported",
    "Job",
    "JobCancelled",
    "JobFailed",
    "NewJob",
    "Page",
    "PermanentError",
    "Policy",
    "Queue",
    "Receipt",
    "Record",
    "Retry",
    "Snooze",
    "Summary",
    "SyncContext",
    "TransientError",
    "ValidationError",
    "Verdict",
    "WaitExpired",
    "Worker",
    "WorkerView",
    "aopen",
    "current_job",
    "errors",
    "migrate",
    "open",
]

#: What takes long to load, and what some programs never ask for: loaded when somebody asks for it.
_LATER: Final = {
    "App": "leftfold.app",
    "Call": "leftfold.app",
    "Handler": "leftfold.app",
    "AsyncEngine": "leftfold.aengine",
    "Context": "leftfold.app",
    "CurrentJob": "leftfold.app",
    "SyncContext": "leftfold.app",
    "Depends": "leftfold.app",
    "Handle": "leftfold.app",
    "Worker": "leftfold.worker",
    "current_job": "leftfold.app",
}


def __getattr__(name: str) -> Any:
    """Load it."""
    if name in _LATER:
        from importlib import import_module  # noqa: PLC0415 - see above

        return getattr(import_module(_LATER[name]), name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - see above

        return version("leftfold")
    raise AttributeError(f"module 'leftfold' has no attribute {name!r}")
