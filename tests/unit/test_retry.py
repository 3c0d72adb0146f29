"""When a failed attempt is tried again, and how often."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftfold.core.errors import LimitExceededError, ValidationError
from leftfold.core.limits import DAY, DELAY_MAX, FAILURES_MAX, LEASE_MAX, LEASE_MIN, MINUTE, SECOND
from leftfold.core.retry import NEVER_RETRIED, PRESETS, QUALITY_ALLOWANCES, Allowance, Backoff, Policy

PLAIN: Final = Backoff(jitter=False)
backoffs = st.builds(
    Backoff,
    base=st.integers(0, DELAY_MAX),
    factor=st.floats(1.0, 100.0),
    cap=st.integers(0, DELAY_MAX),
    jitter=st.booleans(),
)


def test_the_plain_delays_double_up_to_the_cap() -> None:
    delays = [PLAIN.delay(failures, "any") for failures in range(1, 10)]
    assert delays == [500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000, 32_000_000, MINUTE, MINUTE]


def test_the_defaults_are_those_of_the_design() -> None:
    assert Backoff() == Backoff(base=SECOND // 2, factor=2.0, cap=MINUTE, jitter=True)
    assert Policy() == Policy(
        max_failures=5,
        backoff=Backoff(),
        by_error={},
        lease=MINUTE,
        timeout=None,
        on_exhausted="dead_letter",
        hold_stalled=False,
    )


@given(backoffs, st.integers(1, 10**9), st.text(max_size=20))
def test_a_delay_is_within_half_and_one_and_a_half_and_never_above_the_cap(
    backoff: Backoff, failures: int, seed: str
) -> None:
    plain = Backoff(base=backoff.base, factor=backoff.factor, cap=backoff.cap, jitter=False).delay(failures, seed)
    delay = backoff.delay(failures, seed)
    assert 0 <= plain <= backoff.cap
    assert plain // 2 <= delay <= min(backoff.cap, plain + plain // 2)
    assert delay == backoff.delay(failures, seed)
    if not backoff.jitter:
        assert delay == plain


@pytest.mark.parametrize("failures", [1, 2, 63, 64, 65, 1_000, 10**6, 10**9])
def test_nothing_overflows(failures: int) -> None:
    steepest = Backoff(base=DELAY_MAX, factor=100.0, cap=DELAY_MAX, jitter=False)
    assert steepest.delay(failures, "any") == DELAY_MAX
    assert 0 < Backoff(base=2, factor=100.0, cap=DAY).delay(failures, "any") <= DAY


def test_no_failure_counts_as_the_first() -> None:
    assert PLAIN.delay(0, "any") == PLAIN.delay(1, "any")


def test_the_jitter_spreads_a_storm() -> None:
    by_job = {Backoff().delay(1, f"job-{number}") for number in range(200)}
    assert len(by_job) > 190
    assert min(by_job) < 300_000
    assert max(by_job) > 700_000
    at_the_cap = [Backoff().delay(50, f"job-{number}") for number in range(200)]
    assert len({delay for delay in at_the_cap if delay < MINUTE}) > 50
    assert len({Backoff().delay(failures, "job-1") for failures in range(20, 40)}) > 5


def test_the_jitter_of_a_known_failure_never_changes() -> None:
    # A log that was written by this version is replayed by the next one.
    assert [Backoff().delay(failures, "job-1") for failures in (1, 2, 3)] == [541_359, 1_368_725, 1_120_362]


SEED_004: Final = [
    ("network", [30, 60, 120], True),
    ("timeout", [300], True),
    ("dependency", [300] * 40, False),
    ("cancelled", [], True),
]


@pytest.mark.parametrize(("code", "seconds", "ends"), SEED_004)
def test_the_quality_preset_is_the_table_of_seed_004(code: str, seconds: list[int], *, ends: bool) -> None:
    policy = Policy(by_error=PRESETS["quality"])
    for failures, delay in enumerate(seconds, start=1):
        assert policy.allows_retry(code, failures)
        assert policy.delay(code, failures, "any") == delay * SECOND
    assert policy.allows_retry(code, len(seconds) + 1) is not ends


def test_the_presets() -> None:
    assert PRESETS == {"none": {}, "quality": QUALITY_ALLOWANCES}
    assert set(QUALITY_ALLOWANCES) == {row[0] for row in SEED_004}


def test_without_an_allowance_the_common_budget_counts() -> None:
    policy = Policy(max_failures=3, by_error=QUALITY_ALLOWANCES)
    assert [policy.allows_retry("other", failures) for failures in (0, 1, 2, 3, 4)] == [True, True, True, False, False]
    assert not policy.has_own_allowance("other")
    assert policy.has_own_allowance("network")


def test_an_allowance_without_delays_uses_the_backoff_and_the_last_delay_repeats() -> None:
    policy = Policy(
        backoff=PLAIN, by_error={"a": Allowance(max_failures=None), "b": Allowance(max_failures=9, delays=(1, 2))}
    )
    assert [policy.delay("a", failures, "any") for failures in (1, 2)] == [500_000, 1_000_000]
    assert [policy.delay("b", failures, "any") for failures in (1, 2, 3, 8)] == [1, 2, 2, 2]
    assert policy.allows_retry("a", 10**9)


def test_some_errors_are_never_retried_whatever_the_policy_says() -> None:
    assert {"validation_failed", "limit_exceeded", "permanent"} == NEVER_RETRIED
    generous = Policy(by_error={code: Allowance(max_failures=None) for code in NEVER_RETRIED})
    for code in NEVER_RETRIED:
        assert not generous.allows_retry(code, 0)
        assert not Policy().allows_retry(code, 1)


GOOD: Final = [
    Policy(),
    Policy(max_failures=1, lease=LEASE_MIN, timeout=1),
    Policy(max_failures=FAILURES_MAX, lease=LEASE_MAX, timeout=DELAY_MAX),
    Policy(backoff=Backoff(base=0, factor=1.0, cap=0)),
    Policy(backoff=Backoff(base=DELAY_MAX, factor=100.0, cap=DELAY_MAX)),
    Policy(by_error={"a": Allowance(max_failures=1, delays=(0, DELAY_MAX))}),
    Policy(by_error={"a": Allowance(max_failures=None)}),
]
BAD: Final = [
    Policy(max_failures=0),
    Policy(max_failures=FAILURES_MAX + 1),
    Policy(backoff=Backoff(base=-1)),
    Policy(backoff=Backoff(base=DELAY_MAX + 1)),
    Policy(backoff=Backoff(cap=-1)),
    Policy(backoff=Backoff(cap=DELAY_MAX + 1)),
    Policy(lease=LEASE_MIN - 1),
    Policy(lease=LEASE_MAX + 1),
    Policy(timeout=0),
    Policy(timeout=DELAY_MAX + 1),
    Policy(by_error={"a": Allowance(max_failures=0)}),
    Policy(by_error={"a": Allowance(max_failures=FAILURES_MAX + 1)}),
    Policy(by_error={"a": Allowance(max_failures=1, delays=(1, -1))}),
    Policy(by_error={"a": Allowance(max_failures=1, delays=(DELAY_MAX + 1,))}),
]


def test_a_policy_at_its_bounds_is_fine() -> None:
    for policy in GOOD:
        policy.check()


@pytest.mark.parametrize("policy", BAD)
def test_a_policy_past_a_bound_is_refused(policy: Policy) -> None:
    with pytest.raises(LimitExceededError):
        policy.check()


@pytest.mark.parametrize("factor", [0.99, 0.0, -2.0, 100.1, float("inf"), float("nan")])
def test_a_factor_that_cannot_work_is_refused(factor: float) -> None:
    with pytest.raises(ValidationError, match="must lie between 1 and 100"):
        Policy(backoff=Backoff(factor=factor)).check()


def test_an_allowance_is_for_a_code() -> None:
    with pytest.raises(ValidationError, match="is not a name"):
        Policy(by_error={"no code": Allowance(max_failures=1)}).check()
