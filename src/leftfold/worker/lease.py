"""Keeping what was claimed: every lease is renewed at half of its time, and given up before the store may give it away.

Two threads, so that neither a handler that blocks the event loop nor a store that does not answer stands in the way:
one renews, with an engine of its own, and one watches the local deadlines. Code that holds the interpreter's lock
starves both; that is noticed afterwards, and stands on the logs of the jobs that were lost by it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from leftfold.core import events as e
from leftfold.core.commands import Actor, Cancel, Note
from leftfold.core.errors import LeftfoldError, RefusedError, StoreError
from leftfold.core.lifecycle import Who
from leftfold.core.values import CancelMode
from leftfold.engine import Engine
from leftfold.store.ops import Ask, Outcome
from leftfold.store.replies import Claim, Receipt
from leftfold.worker.clocks import now
from leftfold.worker.pulse import Pulse

_LOG: Final = logging.getLogger("leftfold.worker")
_SECOND: Final = 1_000_000
#: So much of a lease is left when it is given up: a tenth, but no more than this.
_MARGIN: Final = 1.0
_AGAIN: Final = 0.5
_BEAT_EVERY: Final = 5.0
_LOOK_EVERY: Final = 1.0
_LATE: Final = 1.0
_LOOP_SECONDS: Final = 5.0  # behind the grace, the event loop has so long to do by itself what it is to do
_MOST: Final = 5_000  # in one statement


class Held:
    """A job that is ours for now: until when by our own clock, and when to renew it."""

    __slots__ = (
        "asked_to_stop", "asked_to_stop_at", "claim", "deadline", "has_ended", "length", "look_at", "renew_at", "stop",
        "was_told",
    )  # fmt: skip

    def __init__(self, claim: Claim, asked_at: float, stop: Callable[[], None] = lambda: None) -> None:
        self.claim = claim
        self.stop = stop  # tells the handler; from any thread, whatever the event loop does
        self.asked_to_stop = False
        self.asked_to_stop_at = 0.0
        self.was_told = False  # the event loop stopped its handler, and says so on the log
        self.has_ended = False  # its handler has: what came of it is on its way to the store
        self.look_at = 0.0
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
        look_every: float,
        cancel_grace: float,
        lost: Callable[[Held, str], None],
        asked_to_stop: Callable[[Held], None],
    ) -> None:
        self._open = engine
        self._look_every = look_every
        self._cancel_grace = cancel_grace
        self._pulse = pulse
        self._lost = lost
        self._asked_to_stop = asked_to_stop
        self._held: set[Held] = set()
        self._changed = threading.Condition()
        self._renew_at = self._watch_at = 0.0  # when each thread looks next
        self._starved = (0.0, 0.0)  # for how long nothing ran, and when that was over
        self._unsaid: list[tuple[Claim, float]] = []  # what was lost by it
        self._lately: list[tuple[Claim, float]] = []  # what was lost, and when: perhaps by what is noticed next
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

    def hold(self, taken: Sequence[Held]) -> None:
        """Renew these from now on. Threads that look in time anyway are left to sleep."""
        look_at = now() + self._look_every
        for held in taken:
            held.look_at = look_at
        with self._changed:
            self._held.update(taken)
            if any(min(h.renew_at, look_at) < self._renew_at or h.give_up_at < self._watch_at for h in taken):
                self._changed.notify_all()

    def drop(self, over: Iterable[Held]) -> None:
        """Renew these no more."""
        with self._changed:
            self._held.difference_update(over)

    # --- renewals ---------------------------------------------------------------------------------------------------

    def _renew_for_ever(self) -> None:
        engine: Engine | None = None
        beat_at = 0.0
        while not self._stopped:
            try:
                engine = engine or self._open()
                self._renew(engine)
                self._look(engine)
                self._force(engine)
                self._say_what_was_starved(engine)
                self._pulse.mark("renewals")
                if now() >= beat_at:
                    self._beat(engine)
                    beat_at = now() + _BEAT_EVERY
            except LeftfoldError as problem:
                _LOG.warning("leases could not be renewed, trying again: %s", problem)
                self._pause(problem)
            except Exception as problem:  # noqa: BLE001 - whatever it is, to end here would lose every job
                _LOG.exception("the renewal of leases failed, trying again")
                self._pause(problem)
            else:
                with self._changed:
                    self._renew_at = min([beat_at, *(min(held.renew_at, held.look_at) for held in self._held)])
                    self._wait_until(self._renew_at)
        if engine is not None:
            engine.close()

    def _beat(self, engine: Engine) -> None:
        try:
            engine.beat(self._pulse.worker, self._pulse.told())
        except LeftfoldError as problem:
            _LOG.warning("the worker could not say that it lives: %s", problem)

    def _pause(self, problem: Exception) -> None:
        """Wait before the next try: for a moment, but for no more than a part of what is left of any lease."""
        self._pulse.failed("renewals", problem)
        left = min((held.give_up_at - now() for held in self._all()), default=_AGAIN)
        with self._changed:
            self._renew_at = 0.0  # new ones do not cut it short
            self._wait_until(now() + min(_AGAIN, max(left / 4, 0.02)))

    def _all(self) -> list[Held]:
        with self._changed:
            return list(self._held)

    def _wait_until(self, moment: float) -> None:
        """Wait, with the lock held. Who wakes long after the moment was kept from running, as everybody else was."""
        seconds = moment - now()
        if self._stopped or seconds <= 0:
            return
        self._changed.wait(seconds)
        late = now() - moment
        if late > _LATE:
            self._starved = (late, now())
            self._pulse.starved(late)
            lately = [(claim, late) for claim, at in self._lately if now() - at < _LATE]  # the other thread was first
            self._unsaid += lately
            self._lately.clear()
            if lately:
                self._renew_at = 0.0
                self._changed.notify_all()
            _LOG.warning(
                "nothing else ran for %.1f s: something held the interpreter's lock, or the machine slept", late
            )

    def _renew(self, engine: Engine) -> None:
        asked_at = now()
        due = [held for held in self._all() if held.renew_at <= asked_at][:_MOST]
        if not due:
            return
        failed: StoreError | None = None
        for held, outcome in zip(due, engine.heartbeat_many([held.claim for held in due]), strict=True):
            if isinstance(outcome, StoreError):
                failed = outcome
                continue
            if isinstance(outcome, Receipt):
                held.renewed(asked_at)
            self._heed(held, outcome)
        if failed is not None:
            raise failed

    def _look(self, engine: Engine) -> None:
        """See whether somebody cancelled what we hold: a renewal would tell, but later. If one is due, all are seen."""
        looked_at = now()
        held = sorted(self._all(), key=lambda each: each.look_at)[:_MOST]
        if held and held[0].look_at <= looked_at:
            for each, outcome in zip(held, engine.look_many([each.claim for each in held]), strict=True):
                each.look_at = looked_at + self._look_every
                self._heed(each, outcome)

    def _heed(self, held: Held, outcome: Outcome) -> None:
        if not isinstance(outcome, Receipt):
            # Refused, or its log is broken: in either case there is nothing to hold on to, and others go on.
            self._give_up(held, str(outcome))
        elif outcome.cancel_requested and not held.asked_to_stop:
            held.asked_to_stop, held.asked_to_stop_at = True, now()
            held.stop()
            self._asked_to_stop(held)

    def _force(self, engine: Engine) -> None:
        """Cancel jobs without their handlers, where the event loop should have done so: one of them blocks it."""
        late = now() - self._cancel_grace - _LOOP_SECONDS
        for held in self._all():
            if not held.asked_to_stop or held.has_ended or held.asked_to_stop_at > late:
                continue
            reason = f"the handler did not stop within {self._cancel_grace:g} s, and blocks all others"
            by = held.claim.actor
            told = [] if held.was_told else [Note(by=by, note=e.CancelDelivered())]  # by its context it was
            commands: list[Note | Cancel] = [*told, Cancel(by=by, mode=CancelMode.HARD, reason=reason)]
            for outcome in engine.settle_many([Ask(held.claim.job_id, command) for command in commands]):
                if isinstance(outcome, StoreError):
                    raise outcome
            self._give_up(held, reason)

    def _give_up(self, held: Held, why: str) -> None:
        with self._changed:
            if held not in self._held:
                return  # its outcome is written by now
            self._held.discard(held)
        held.stop()
        with self._changed:
            length, over_at = self._starved
            if over_at and now() - over_at < _LATE:
                why = f"nothing of this worker ran for {length:.1f} s, its renewals neither"
                self._unsaid.append((held.claim, length))
                self._renew_at = 0.0
                self._changed.notify_all()
            else:
                self._lately = [*(each for each in self._lately if now() - each[1] < _LATE), (held.claim, now())]
        self._lost(held, why)

    def _say_what_was_starved(self, engine: Engine) -> None:
        """Say on the logs of lost jobs why. They are not ours any more: whoever has them now may read it."""
        by = Actor(who=Who.WORKER, name=self._pulse.worker)
        while self._unsaid:
            claim, length = self._unsaid[0]
            with suppress(RefusedError):  # it has ended meanwhile
                engine.note(claim.job_id, e.Starved(attempt=claim.attempt, length=round(length * _SECOND)), by=by)
            del self._unsaid[0]

    # --- deadlines --------------------------------------------------------------------------------------------------

    def _watch_for_ever(self) -> None:
        while not self._stopped:
            self._pulse.mark("deadlines")
            with self._changed:
                planned = min([now() + _LOOK_EVERY, *(held.give_up_at for held in self._held)])
                self._watch_at = planned
                self._wait_until(planned)
            for held in self._all():
                if held.give_up_at <= now():
                    self._give_up(held, "its lease could not be renewed in time")
