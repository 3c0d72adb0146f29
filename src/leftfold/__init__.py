"""Leftfold: a durable job engine. A job's state is the left fold of its events."""

from typing import TYPE_CHECKING, Any

from leftfold.asking import NewJob
from leftfold.core import errors
from leftfold.core.commands import Actor
from leftfold.core.job import Job
from leftfold.core.record import Record
from leftfold.core.retry import Allowance, Backoff, Policy
from leftfold.core.values import Failure
from leftfold.engine import Engine
from leftfold.opening import aopen, migrate, open  # noqa: A004 - leftfold.open reads as it should
from leftfold.store.audit import Finding
from leftfold.store.export import Imported
from leftfold.store.feed import Consumer, FeedPage
from leftfold.store.replies import Claim, Count, Page, Queue, Receipt, Summary, Verdict

if TYPE_CHECKING:
    from leftfold.aengine import AsyncEngine

__all__ = [
    "Actor",
    "Allowance",
    "AsyncEngine",
    "Backoff",
    "Claim",
    "Consumer",
    "Count",
    "Engine",
    "Failure",
    "FeedPage",
    "Finding",
    "Imported",
    "Job",
    "NewJob",
    "Page",
    "Policy",
    "Queue",
    "Receipt",
    "Record",
    "Summary",
    "Verdict",
    "aopen",
    "errors",
    "migrate",
    "open",
]


def __getattr__(name: str) -> Any:
    """Load what takes long, and what most programs never ask for, when somebody asks for it."""
    if name == "AsyncEngine":
        from leftfold.aengine import AsyncEngine  # noqa: PLC0415 - see above

        return AsyncEngine
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - see above

        return version("leftfold")
    raise AttributeError(f"module 'leftfold' has no attribute {name!r}")
