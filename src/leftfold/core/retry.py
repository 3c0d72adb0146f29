"""When a failed attempt is tried again: a pure function of the policy, the error and what is used up.

The policy is recorded with the job when it is enqueued, so a keeper that knows nothing of the handler
decides as its worker would. The jitter comes from (job id, failures), so a replay gives the same moment.
"""

import math
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Literal

from msgspec import field

from leftfold.core import errors, limits
from leftfold.core.frozen import Frozen
from leftfold.core.limits import MINUTE, SECOND

#: e ** 60 µs is past any cap; a higher power would only risk an overflow.
_LOG_MAX: Final = 60.0

#: An error of these classes is never worth another attempt, whatever the policy says.
NEVER_RETRIED: Final = frozenset(
    error.code for error in (errors.ValidationError, errors.LimitExceededError, errors.PermanentError)
)


class Backoff(Frozen):
    """`base * factor ** (n - 1)` after failure n, times 0.5 to 1.5, never more than `cap`."""

    base: int = SECOND // 2
    factor: float = 2.0
    cap: int = MINUTE
    jitter: bool = True

    def delay(self, failures: int, seed: str) -> int:
        """Give the microseconds to wait after failure number `failures` (1, 2, …)."""
        power = max(failures, 1) - 1
        huge = power * math.log(self.factor) > _LOG_MAX
        plain = min(self.cap, int(self.base * math.exp(_LOG_MAX) if huge else self.base * self.factor**power))
        if not self.jitter:
            return plain
        # The second cap keeps the promise of a longest delay; the lower half still spreads a storm.
        return min(self.cap, plain * (2**31 + _uniform32(f"{seed}:{failures}")) >> 32)


class Allowance(Frozen):
    """What one class of errors may cost: how many failures end the job (None: no number), and when to retry.

    Without `delays` the policy's backoff counts; the last of the delays repeats.
    """

    max_failures: int | None
    delays: tuple[int, ...] = ()


class Policy(Frozen):
    """Everything about a job that its keeper has to know."""

    max_failures: int = 5
    backoff: Backoff = Backoff()
    by_error: Mapping[str, Allowance] = field(default_factory=dict)
    lease: int = MINUTE
    timeout: int | None = None
    on_exhausted: Literal["dead_letter", "fail"] = "dead_letter"
    hold_stalled: bool = False

    def check(self) -> None:
        """Refuse a policy that could never work."""
        limits.between("max_failures", self.max_failures, 1, limits.FAILURES_MAX)
        limits.span("backoff base", self.backoff.base, 0, limits.DELAY_MAX)
        limits.span("backoff cap", self.backoff.cap, 0, limits.DELAY_MAX)
        if not 1.0 <= self.backoff.factor <= 100.0:
            raise errors.ValidationError(f"backoff factor {self.backoff.factor} must lie between 1 and 100")
        limits.span("lease", self.lease, limits.LEASE_MIN, limits.LEASE_MAX)
        if self.timeout is not None:
            limits.span("timeout", self.timeout, 1, limits.DELAY_MAX)
        for code, allowed in self.by_error.items():
            limits.name("error code", code)
            if allowed.max_failures is not None:
                limits.between(f"max_failures of {code}", allowed.max_failures, 1, limits.FAILURES_MAX)
            for delay in allowed.delays:
                limits.span(f"delay of {code}", delay, 0, limits.DELAY_MAX)

    def has_own_allowance(self, error_code: str) -> bool:
        """Tell whether failures of this class are counted apart from the common budget."""
        return error_code in self.by_error

    def allows_retry(self, error_code: str, failures: int) -> bool:
        """Tell whether the job may go on after `failures` failures that count against this class's budget."""
        if error_code in NEVER_RETRIED:
            return False
        own = self.by_error.get(error_code)
        most = self.max_failures if own is None else own.max_failures
        return most is None or failures < most

    def delay(self, error_code: str, failures: int, seed: str) -> int:
        """Give the microseconds to wait after that failure of this class."""
        own = self.by_error.get(error_code)
        if own is None or not own.delays:
            return self.backoff.delay(failures, seed)
        return own.delays[min(failures, len(own.delays)) - 1]


#: What holds for a job that says nothing. A stored event leaves it out.
DEFAULT_POLICY: Final = Policy()

#: Seed 004 §5, row by row: the first failure plus its number of retries.
QUALITY_ALLOWANCES: Final[Mapping[str, Allowance]] = {
    "network":    Allowance(max_failures=4, delays=(30 * SECOND, 60 * SECOND, 120 * SECOND)),
    "timeout":    Allowance(max_failures=2, delays=(5 * MINUTE,)),
    "dependency": Allowance(max_failures=None, delays=(5 * MINUTE,)),
    "cancelled":  Allowance(max_failures=1),
}  # fmt: skip

#: Ready-made tables for `Policy.by_error`.
PRESETS: Final[Mapping[str, Mapping[str, Allowance]]] = {"none": {}, "quality": QUALITY_ALLOWANCES}


def _uniform32(seed: str) -> int:
    return int.from_bytes(sha256(seed.encode()).digest()[:4])
