"""What a handler may know of the attempt that it runs in."""

import logging
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from leftfold.core.errors import NoCurrentJobError
from leftfold.core.values import Spec
from leftfold.store.replies import Claim

if TYPE_CHECKING:
    from leftfold.app.app import App

_CURRENT: Final[ContextVar["Context"]] = ContextVar("leftfold_current_job")


class Context:
    """The attempt that a handler runs in: for a parameter of this type, and from `current_job()` anywhere."""

    def __init__(self, app: "App", claim: Claim, state: Any = None) -> None:
        self.app = app
        self.state = state  # what the lifespan gave
        self.log = logging.getLogger(f"leftfold.job.{claim.kind}")
        self._claim = claim
        self._stop = threading.Event()

    def __repr__(self) -> str:
        return f"<{self.kind} {self.job_id}, attempt {self.attempt}>"

    @property
    def job_id(self) -> str:
        """Give the job's id: the same in every attempt."""
        return self._claim.job_id

    @property
    def kind(self) -> str:
        """Give what kind of job it is."""
        return self._claim.kind

    @property
    def attempt(self) -> int:
        """Give the number of this attempt, from 1 on."""
        return self._claim.attempt

    @property
    def failures(self) -> int:
        """Give how much of the retry budget is used."""
        return self._claim.failures

    @property
    def spec(self) -> Spec:
        """Give what was asked for: queue, priority, key, tenant, correlation id, the payload as text."""
        return self._claim.spec

    @property
    def claim(self) -> Claim:
        """Give the claim, for what the engine can do with it."""
        return self._claim

    @property
    def cancelled(self) -> bool:
        """Tell whether to stop: the lease is lost, time is up, or somebody asked for it. `def` handlers look here."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask the handler to stop."""
        self._stop.set()

    def enter(self) -> None:
        """Be the current job from here on, in this task or thread."""
        _CURRENT.set(self)


def current_job() -> Context:
    """Give the context of the job whose handler calls this, however deep inside."""
    found = _CURRENT.get(None)
    if found is None:
        raise NoCurrentJobError("no job runs here: current_job() is for handlers, and for what they call")
    return found


def current_or_none() -> Context | None:
    """Give the same, or None outside of any job."""
    return _CURRENT.get(None)
