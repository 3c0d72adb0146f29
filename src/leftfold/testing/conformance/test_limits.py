"""Limits: what no store could keep, or no reader could trust, is refused before anything is written."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pytest
from msgspec import Raw

from leftfold import Allowance, Backoff, Policy
from leftfold.core.errors import LimitExceededError, ValidationError
from leftfold.core.limits import DAY, KEY_CHARS_MAX, NAME_CHARS_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX
from leftfold.testing.conformance.scene import KIND, Scene, shown

NAMES: Final = ("kind", "queue", "tenant")
KEYS: Final = ("key", "correlation_id", "cause", "request_id", "by")
NO_KEYS: Final[list[Any]] = ["", "\x00", "a\x00b", "tab\t", "line\n", "\x7f", "half \ud800", "\udfff half", 7, b"x"]
#: Texts that are keys and no names.
NO_NAMES: Final = ["a b", "é", "-a", ".a", "a\u200b", "a'b", 'a"b', "a\\b", "a%b", "a{b}", "a;b", " a", "a "]
#: For those columns that a text is not tried on for every fault that it can have.
FAULTS: Final[list[Any]] = ["nul\x00", "half \ud800", 7]
BAD: Final[list[tuple[str, Any, type[Exception]]]] = [
    *[("kind", value, ValidationError) for value in (*NO_NAMES, *NO_KEYS)],
    *[(column, value, ValidationError) for column in ("queue", "tenant") for value in ("a b", *FAULTS)],
    *[(column, "x" * (NAME_CHARS_MAX + 1), LimitExceededError) for column in NAMES],
    *[("key", value, ValidationError) for value in NO_KEYS],
    *[(column, value, ValidationError) for column in KEYS[1:] for value in FAULTS],
    *[(column, "x" * (KEY_CHARS_MAX + 1), LimitExceededError) for column in KEYS],
    *[("priority", value, LimitExceededError) for value in (32_768, -32_768, 2**31, 2**63, -(2**63) - 1, "99999")],
    *[("priority", value, ValidationError) for value in ("P4", "high", "", "1.5", 1.5, True, None, [1])],
    *[("due", value, LimitExceededError) for value in (
        -1, -0.000001, 10**12, 1e12, timedelta.max, timedelta(days=-1),
        datetime(1969, 12, 31, tzinfo=UTC),
    )],
    *[("due", value, ValidationError) for value in (
        float("nan"), float("inf"), float("-inf"), 2**63, 1e300, 1e305, 10**400, "tomorrow", "60", True, [1],
        datetime(2033, 1, 1),  # noqa: DTZ001 - naive is what is to be refused
    )],
    *[("policy", value, LimitExceededError) for value in (
        Policy(max_failures=0), Policy(max_failures=1_000_001), Policy(lease=0), Policy(lease=DAY + 1),
        Policy(lease=2**63), Policy(timeout=0), Policy(timeout=2**63), Policy(backoff=Backoff(base=-1)),
        Policy(backoff=Backoff(cap=2**63)), Policy(by_error={"x": Allowance(max_failures=0)}),
        Policy(by_error={"x": Allowance(max_failures=None, delays=(-1,))}),
    )],
    *[("policy", value, ValidationError) for value in (
        Policy(backoff=Backoff(factor=0.5)), Policy(backoff=Backoff(factor=float("nan"))),
        Policy(by_error={"no name": Allowance(max_failures=1)}), None, {"max_failures": 3},
    )],
    ("after", ["no id"], ValidationError),
    ("after", ["018bcfe5-6800-7001-8006-dc03ab568d43"] * 1_001, LimitExceededError),
]  # fmt: skip


def nested(depth: int) -> list[Any]:
    """Give lists inside each other."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


BAD_PAYLOADS: Final[dict[str, tuple[Any, type[Exception]]]] = {
    "2^63": (2**63, ValidationError),
    "-2^63-1": (-(2**63) - 1, ValidationError),
    "2^64": (2**64, ValidationError),
    "2^63 inside": ({"a": [2**63]}, ValidationError),
    "nan": (float("nan"), ValidationError),
    "nan inside": ([1, {"a": float("nan")}], ValidationError),
    "infinity": (float("inf"), ValidationError),
    "nul": ("a\x00b", ValidationError),
    "nul inside": ([{"a": "\x00"}], ValidationError),
    "nul in a name": ({"\x00": 1}, ValidationError),
    "half of a pair": ("\ud800", ValidationError),
    "half of a pair inside": ({"a": ["\udc00"]}, ValidationError),
    "an object": (object(), ValidationError),
    "a function": (len, ValidationError),
    "too deep": (nested(PAYLOAD_DEPTH_MAX + 1), LimitExceededError),
    "far too deep": (nested(100_000), ValidationError),
    "too long": ("x" * (PAYLOAD_BYTES_MAX - 1), LimitExceededError),
    "too long in bytes": ("é" * (PAYLOAD_BYTES_MAX // 2), LimitExceededError),
    "raw, not json": (Raw(b"{"), ValidationError),
    "raw, two values": (Raw(b"1 2"), ValidationError),
    "raw, blanks around": (Raw(b" 1 "), ValidationError),
    "raw, empty": (Raw(b""), ValidationError),
    "raw, no utf-8": (Raw(b'"\xff"'), ValidationError),
    "raw, half of a pair": (Raw(b'"\\ud800"'), ValidationError),
    "raw, nul": (Raw(b'"\\u0000"'), ValidationError),
    "raw, past a float": (Raw(b"1e999"), ValidationError),
    "raw, 2^63": (Raw(b"9223372036854775808"), ValidationError),
}


class TestWhatIsRefused:
    """One argument at a time."""

    @pytest.mark.parametrize(("column", "value", "error"), BAD, ids=shown)
    def test_an_argument_that_cannot_be_kept(
        self, scene: Scene, column: str, value: Any, error: type[Exception]
    ) -> None:
        with scene.refuses(error):
            scene.engine.enqueue(**{"kind": KIND, column: value})

    @pytest.mark.parametrize(("payload", "error"), BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
    def test_a_payload_that_not_every_reader_would_read_alike(
        self, scene: Scene, payload: Any, error: type[Exception]
    ) -> None:
        with scene.refuses(error):
            scene.engine.enqueue(KIND, payload)


class TestWhatIsJustAllowed:
    """The longest, the deepest, the most."""

    @pytest.mark.parametrize("column", NAMES)
    def test_the_longest_name(self, scene: Scene, column: str) -> None:
        name = ("aZ09_.:/@+-" * 20)[:NAME_CHARS_MAX]
        only: dict[str, Any] = {column: name}
        job_id = scene.enqueued(**only)
        assert getattr(scene.job(job_id).spec, column) == name
        assert [job.id for job in scene.engine.list(**only).jobs] == [job_id]

    def test_the_longest_key_of_the_widest_characters(self, scene: Scene) -> None:
        random = Random(7)  # noqa: S311 - the same every time, and not to be compressed
        key = "".join(chr(random.randrange(0x10000, 0x110000)) for _ in range(KEY_CHARS_MAX))
        job: dict[str, Any] = {"tenant": "t" * NAME_CHARS_MAX, "kind": "k" * NAME_CHARS_MAX, "key": key}
        job_id = scene.enqueued(**job, correlation_id=key, cause=key, request_id=key, by=key)
        assert scene.job(job_id).spec.key == key
        assert scene.engine.enqueue(**job).job_id == job_id
        assert [found.id for found in scene.engine.list(correlation_id=key).jobs] == [job_id]

    def test_the_longest_payload_and_result(self, scene: Scene) -> None:
        longest = "x" * (PAYLOAD_BYTES_MAX - 2)
        claim = scene.started(payload=longest)
        scene.engine.complete(claim, longest)
        job = scene.job(claim.job_id)
        assert job.payload == job.output == claim.payload == longest

    def test_the_deepest_payload(self, scene: Scene) -> None:
        deepest = nested(PAYLOAD_DEPTH_MAX)
        assert scene.job(scene.enqueued(payload=deepest)).payload == deepest

    def test_the_longest_wait_for_a_due_time(self, scene: Scene) -> None:
        job_id = scene.enqueued(due=timedelta(days=3_650))
        assert scene.job(job_id).due == scene.clock.now + 3_650 * DAY
        end_of_time = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        assert scene.job(scene.enqueued(due=end_of_time)).due == 253_402_300_799_000_000

    @pytest.mark.parametrize(
        "key",
        ["a", " ", "NULL", "null", "{}", "{a,b}", '"', "\\", "\\x00", "\\u0000", "a,b", "'", "%s", "%(now)s", ":now",
         "$1", "?", "--", "/*", "😀", "e\u0301", "\u00e9", "\u200b", "\u202e", "\ufeff", "\ufffe", "\u2028"],
        ids=ascii,
    )  # fmt: skip
    def test_a_key_of_any_printable_text(self, scene: Scene, key: str) -> None:
        job_id = scene.enqueued(key=key, correlation_id=key, cause=key, request_id=key, by=key)
        job, record = scene.job(job_id), scene.last(job_id)
        assert {job.spec.key, job.spec.correlation_id, job.spec.cause, record.request_id, record.actor} == {key}
        assert scene.engine.enqueue(KIND, key=key).job_id == job_id
        assert [found.id for found in scene.engine.list(key=key).jobs] == [job_id]
