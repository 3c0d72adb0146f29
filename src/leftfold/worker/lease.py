"""Keeping what was claimed: every lease is renewed at half of its time, and given up before the store may give it away.

Two threads, so that neither a handler that blocks the event loop nor a store that does not answer stands in the way:
one renews, with an engine of its own, and one watches the local deadlines. Code that holds the interpreter's lock
starves both; that is noticed afterwards, and said.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from leftfold.core.errors import LeftfoldError, RefusedError
from leftfold.engine import Engine
from leftfold.store.replies import Claim, Receipt
from leftfold.worker.clocks import now
from leftfold.worker.pulse import Pulse

_LOG: Final = logging.getLogger("leftfold.worker")
_SECOND: Final = 1_000_000
#: So much of a lease is left when it is given up: a tenth, but no more than this.
_MARGIN: Final = 1.0
_AGAIN: Final = 0.5
_BEAT_EVERY: Final = 5.0


class Held:
    """A job that is ours for now: until when by our own clock, and when to renew it."""

    def __init__(self, claim: Claim, asked_at: float) -> None:
        self.claim = claim
        self.length = claim.policy.lease / _SECOND
        self.renewed(asked_at)

    def renewed(self, asked_at: float) -> None:
        """Count from when it was asked for: the store's answer may have been on its way for long."""
        self.deadline = asked_at + self.length
        self.renew_at = asked_at + self.length / 2

    @property
    def give_up_at(self) -> float:
        """Give when to stop: before anybody else may take the job."""
        return self.deadline - min(_MARGIN, self.length / 10)


class Leases:
    """All that a worker holds. `lost` and `asked_to_stop` are called from threads."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        pulse: Pulse,
        *,
        lost: Callable[[Held, str], None],
        asked_to_stop: Callable[[Held], None],
    ) -> None:
        self._open = engine
        self._pulse = pulse
        self._lost = lost
        self._asked_to_stop = asked_to_stop
        self._held: set[Held] = set()
        self._changed = threading.Condition()
        self._stopped = False
        self._threads = [
            threading.Thread(target=target, name=f"leftfold-{name}", daemon=True)
            for name, target in (("renewals", self._renew_for_ever), ("deadlines", self._watch_for_ever))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what is still held runs out by itself."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)

    def hold(self, held: Held) -> None:
        """Renew this one from now on."""
        with self._changed:
            self._held.add(held)
            self._changed.notify_all()

    def drop(self, held: Held) -> None:
        """Renew it no more."""
        with self._changed:
            self._held.discard(held)

    # --- renewals ---------------------------------------------------------------------------------------------------

    def _renew_for_ever(self) -> None:
        engine: Engine | None = None
        beat_at = 0.0
        while not self._stopped:
            self._pulse.mark("renewals")
            try:
                engine = engine or self._open()
                if now() >= beat_at:
                    engine.beat(self._pulse.worker, self._pulse.told())
                    beat_at = now() + _BEAT_EVERY
                self._renew(engine)
            except LeftfoldError as problem:
                _LOG.warning("leases could not be renewed, trying again: %s", problem)
                self._wait(_AGAIN)
            except Exception:  # noqa: BLE001 - whatever it is, to end here would lose every job
                _LOG.exception("the renewal of leases failed, trying again")
                self._wait(_AGAIN)
            else:
                self._wait(min([beat_at, *(held.renew_at for held in self._all())]) - now())
        if engine is not None:
            engine.close()

    def _all(self) -> list[Held]:
        with self._changed:
            return list(self._held)

    def _wait(self, seconds: float) -> None:
        with self._changed:
            if not self._stopped and seconds > 0:
                self._changed.wait(seconds)

    def _renew(self, engine: Engine) -> None:
        asked_at = now()
        due = [held for held in self._all() if held.renew_at <= asked_at]
        if not due:
            return
        for held, outcome in zip(due, engine.heartbeat_many([held.claim for held in due]), strict=True):
            if isinstance(outcome, Receipt):
                held.renewed(asked_at)
                if outcome.cancel_requested:
                    self._asked_to_stop(held)
            elif isinstance(outcome, RefusedError):
                self._give_up(held, str(outcome))
            else:
                raise outcome

    def _give_up(self, held: Held, why: str) -> None:
        with self._changed:
            if held not in self._held:
                return  # its outcome is written by now
            self._held.discard(held)
        self._lost(held, why)

    # --- deadlines --------------------------------------------------------------------------------------------------

    def _watch_for_ever(self) -> None:
        while not self._stopped:
            self._pulse.mark("deadlines")
            planned = min([held.give_up_at for held in self._all()], default=now() + 1.0)
            planned = min(planned, now() + 1.0)
            self._wait(planned - now())
            late = now() - planned
            if late > 1.0:
                self._pulse.starved(late)
                _LOG.warning(
                    "nothing else ran for %.1f s: something held the interpreter's lock, or the machine slept", late
                )
            for held in self._all():
                if held.give_up_at <= now():
                    self._give_up(held, "its lease could not be renewed in time")
