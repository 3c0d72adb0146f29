"""Job ids: UUIDs of version 7 that only grow, whatever the clock does."""

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.core.errors import LimitExceededError, ValidationError
from leftfold.store.ids import SHARDS, Ids

NOW = 1_700_000_000_123_456  # microseconds
COUNTER_BITS, RANDOM_BITS = 12, 52


def at(now: int = NOW, noise: int = 0, shard: int = 0) -> Ids:
    """Give a maker whose clock stands still and whose randomness is one byte, again and again."""
    return Ids(lambda: now, lambda count: bytes([noise]) * count, shard)


def milliseconds(job_id: str) -> int:
    return UUID(job_id).int >> 80


def counter(job_id: str) -> int:
    return (UUID(job_id).int >> 64) & 0xFFF


def shard_of(job_id: str) -> int:
    return (UUID(job_id).int >> RANDOM_BITS) & (SHARDS - 1)


def random_of(job_id: str) -> int:
    return UUID(job_id).int & ((1 << RANDOM_BITS) - 1)


@settings(deadline=None)
@given(
    st.integers(0, (1 << 48) - 1), st.integers(0, SHARDS - 1), st.binary(min_size=7, max_size=7), st.integers(0, 999)
)
def test_every_field_is_where_the_standard_puts_it(ms: int, shard: int, noise: bytes, rest: int) -> None:
    (job_id,) = Ids(lambda: ms * 1000 + rest, lambda _: noise, shard).make(1)
    parsed = UUID(job_id)
    assert str(parsed) == job_id, "it is spelled as everybody spells it"
    assert (parsed.version, parsed.variant) == (7, RFC_4122)
    assert milliseconds(job_id) == ms
    assert counter(job_id) == (0 if ms else 1), "the first one of a millisecond; before 1970 has begun there is none"
    assert shard_of(job_id) == shard
    assert random_of(job_id) == int.from_bytes(noise) >> 4


def test_an_id_tells_the_time_of_its_making() -> None:
    (job_id,) = at(NOW).make(1)
    assert milliseconds(job_id) == NOW // 1000


def test_without_a_clock_the_time_of_the_machine_counts() -> None:
    import time  # noqa: PLC0415 - nobody else here has a clock

    before = time.time_ns() // 1_000_000
    (job_id,) = Ids().make(1)
    assert before <= milliseconds(job_id) <= time.time_ns() // 1_000_000


def test_ids_grow_while_the_clock_stands_still() -> None:
    ids = at()
    made = [job_id for _ in range(5000) for job_id in ids.make(1)]
    assert made == sorted(set(made))
    assert milliseconds(made[-1]) == NOW // 1000 + 1, "a counter that is full borrows from the next millisecond"
    assert counter(made[4095]) == 4095
    assert counter(made[4096]) == 0


@settings(deadline=None)
@given(st.lists(st.integers(-10_000_000, 10_000_000), min_size=2, max_size=20), st.integers(1, 50))
def test_ids_grow_while_the_clock_goes_back_and_forth(steps: list[int], count: int) -> None:
    moments = iter([NOW + step for step in steps])
    ids = Ids(lambda: next(moments), bytes)
    made = [job_id for _ in steps for job_id in ids.make(count)]
    assert made == sorted(set(made))
    assert all(len(job_id) == 36 for job_id in made)


def test_behind_a_clock_that_was_set_back_the_time_of_the_last_one_stays() -> None:
    moments = iter([NOW, NOW - 3_600_000_000, NOW + 1_000])
    ids = Ids(lambda: next(moments), bytes)
    first, second, third = (ids.make(1)[0] for _ in range(3))
    assert milliseconds(first) == milliseconds(second) == NOW // 1000
    assert milliseconds(third) == NOW // 1000 + 1
    assert first < second < third


@pytest.mark.parametrize("count", [0, 1, 2, 4096, 4097, 10_000])
def test_a_batch_is_as_long_as_asked_and_grows(count: int) -> None:
    ids = at()
    batch = ids.make(count)
    assert len(batch) == len(set(batch)) == count
    assert batch == sorted(batch)
    (following,) = ids.make(1)
    assert not batch or following > batch[-1]


def test_each_id_of_a_batch_has_randomness_of_its_own() -> None:
    asked = []

    def randomness(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    batch = Ids(lambda: NOW, randomness).make(3)
    assert asked == [20]
    assert [random_of(job_id) for job_id in batch] == [
        int(bytes(range(20)).hex()[13 * n : 13 * n + 13], 16) for n in range(3)
    ]


def test_two_makers_with_equal_clocks_differ_by_their_randomness() -> None:
    made = [job_id for _ in range(200) for job_id in Ids(lambda: NOW).make(5)]
    assert len(set(made)) == 1000


def test_one_by_one_each_id_has_randomness_of_its_own() -> None:
    ids = Ids(lambda: NOW)
    assert len({random_of(ids.make_one()) for _ in range(1000)}) == 1000


def test_threads_that_share_a_maker_share_no_randomness_and_no_time() -> None:
    ids, together, usual = Ids(lambda: NOW), Barrier(8), sys.getswitchinterval()

    def make(_: int) -> list[str]:
        together.wait()
        return [ids.make_one() for _ in range(1000)]

    sys.setswitchinterval(1e-6)  # so that they come in between each other wherever they can
    try:
        with ThreadPoolExecutor(8) as threads:
            made = [job_id for each in threads.map(make, range(8)) for job_id in each]
    finally:
        sys.setswitchinterval(usual)
    assert len({random_of(job_id) for job_id in made}) == 8000
    assert len({job_id[:18] for job_id in made}) == 8000


@pytest.mark.parametrize("fork", [os.fork, ctypes.PyDLL(None).fork], ids=["Python's", "one behind its back"])
def test_a_child_goes_on_with_randomness_of_its_own(fork: Callable[[], int]) -> None:
    ids = Ids(lambda: NOW)
    ids.make_one()  # so that there is some left, drawn ahead
    reading, writing = os.pipe()
    child = fork()
    if not child:
        os.write(writing, ids.make_one().encode())
        os._exit(0)
    os.waitpid(child, 0)
    made = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert len(made) == 36
    assert random_of(made) != random_of(ids.make_one())


@pytest.mark.parametrize("shard", [0, 1, 511, 512, 1023])
def test_the_shard_can_be_read_back(shard: int) -> None:
    for noise in (0x00, 0xFF, 0xA5):
        batch = at(noise=noise, shard=shard).make(3)
        assert [shard_of(job_id) for job_id in batch] == [shard] * 3
        assert {UUID(job_id).variant for job_id in batch} == {RFC_4122}


@pytest.mark.parametrize("shard", [-1, 1024, 10**9])
def test_a_shard_that_there_is_not_is_refused(shard: int) -> None:
    with pytest.raises(LimitExceededError, match="shard"):
        Ids(shard=shard)


def test_a_shard_is_a_whole_number() -> None:
    for wrong in ("1", 1.5, None, True):
        with pytest.raises(ValidationError):
            Ids(shard=wrong)  # type: ignore[arg-type]


def test_threads_never_get_the_same_id() -> None:
    ids, barrier = at(), Barrier(8)

    def make(_: int) -> list[str]:
        barrier.wait(30)
        return [job_id for n in range(300) for job_id in ids.make(1 + n % 5)]

    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(make, range(8)))
    made = [job_id for part in parts for job_id in part]
    assert len(set(made)) == len(made) == 8 * 300 * 3
    assert all(earlier < later for part in parts for earlier, later in pairwise(part))
