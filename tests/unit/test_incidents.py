"""Which dead letters are one incident: those that the same thing went wrong with, and no others."""

import traceback

import pytest

from leftfold.core.letters import Reason, Stage, incident_of
from leftfold.core.values import Failure

OLD = """Traceback (most recent call last):
  File "/srv/releases/7/shop/mail.py", line 12, in send
    connect(host)
  File "/srv/releases/7/shop/net.py", line 90, in connect
    raise OSError(f"no route to {host}")
OSError: no route to 10.0.0.7
"""


def named(error: Failure, kind: str = "mail", reason: Reason = Reason.TIMEOUT, stage: Stage = Stage.EXEC) -> str:
    return incident_of(kind, reason, stage, error)


def raised(told: str, code: str = "error", message: str = "no route", type_: str | None = "OSError") -> Failure:
    return Failure(code=code, message=message, type=type_, traceback=told)


def test_a_name_is_short_and_never_changes() -> None:
    assert named(raised(OLD)) == "ec4879d4a973"
    assert named(Failure(code="error", message="card 4711 was declined")) == "df97a2c56814"
    assert named(Failure(code="lease_expired", message="worker-a is no longer trusted")) == "1f2a106adde2"


@pytest.mark.parametrize(
    "told",
    [
        OLD.replace("10.0.0.7", "10.0.0.8"),
        OLD.replace("line 90", "line 94"),
        OLD.replace("releases/7", "releases/8"),
        OLD.replace("line 12, in send\n    connect(host)", "line 15, in send_all\n    connect(hosts[0])"),
        OLD.replace("host}\")\n", "host}\")\n          ^^^^^^^^^^^^^^^\n"),
        f"ValueError: before\n\nDuring handling of the above exception, another exception occurred:\n\n{OLD}",
        OLD.replace("/srv/releases/7/shop/", "C:\\releases\\shop\\"),
    ],
    ids=["message", "line", "release", "caller", "marks", "chained", "another system"],
)  # fmt: skip
def test_what_was_raised_at_the_same_place_is_the_same(told: str) -> None:
    assert named(raised(told)) == named(raised(OLD))


@pytest.mark.parametrize(
    "told",
    [
        OLD.replace("net.py", "http.py"),
        OLD.replace("in connect\n", "in reconnect\n"),
        OLD.replace("no route to {host}", "refused by {host}"),
    ],
    ids=["file", "function", "words of the line"],
)
def test_what_was_raised_elsewhere_is_not(told: str) -> None:
    assert named(raised(told)) != named(raised(OLD))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 is gone", "order 18 is gone"),
        ("no customer 'ann'", "no customer 'bob miller'"),
        ('no file "a b.txt"', 'no file "c.txt"'),
        ("no table `a`", "no table `b`"),
        ("can't find user 'alice'", "can't find user 'bob'"),
        ("job 019a1e34-5922-7000 of a0:b1 is lost", "job 0f9a1e34-5922-7001 of c7 is lost"),
        ("too large\nby 3 bytes", "too large\nand other things"),
    ],
)
def test_without_a_traceback_what_is_quoted_or_numbered_does_not_tell(one: str, other: str) -> None:
    assert named(Failure(code="error", message=one)) == named(Failure(code="error", message=other))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["a" * 65_536, "'" * 65_536, "a'" * 32_768, '"' * 65_536, "`a" * 32_768, " " * 65_536, "1" * 65_536],
    ids=lambda text: repr(text[:2]),
)  # fmt: skip
def test_the_longest_message_takes_no_time(text: str) -> None:
    named(Failure(code="error", message=text))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "told",
    [
        'File "' * 10_000,
        'File "' + "/" * 65_536,
        "  " * 32_768 + "File",
        " |" * 32_768,
        'File "a", line ' + "1" * 65_536,
        'File "a", line 1, in ' + "x" * 65_536,
        '  File "a", line 1, in f\n' * 2_600,
        "\n" * 65_536,
    ],
    ids=lambda told: repr(told[:8]),
)
def test_the_longest_traceback_neither(told: str) -> None:
    named(raised(told))


def test_where_the_line_is_not_known_the_error_below_it_does_not_stand_in_for_it() -> None:
    told = 'Traceback (most recent call last):\n  File "<string>", line 1, in send\nValueError: order {} is gone\n'
    assert named(raised(told.format("ann"))) == named(raised(told.format("bob")))
    deeper = told.replace("in send\n", 'in send\n  File "<string>", line 2, in fetch\n')
    assert named(raised(deeper)) != named(raised(told))


def test_an_apostrophe_is_no_quotation_mark() -> None:
    one, other = "host doesn't resolve; it isn't there", "host doesn't accept mail; it isn't there"
    assert named(Failure(code="error", message=one)) != named(Failure(code="error", message=other))


def test_other_words_do() -> None:
    assert named(Failure(code="error", message="no route")) != named(Failure(code="error", message="no host"))
    killed, crashed = (Failure(code="error", message=f"killed by {name}") for name in ("SIGKILL", "SIGSEGV"))
    assert named(killed) != named(crashed)


def test_kind_reason_stage_code_and_type_do() -> None:
    error = raised(OLD)
    names = {
        named(error),
        named(error, kind="print"),
        named(error, reason=Reason.EXHAUSTED_RETRIES),
        named(error, stage=Stage.FETCH),
        named(raised(OLD, code="network")),
        named(raised(OLD, type_="ConnectionError")),
    }
    assert len(names) == 6


def test_lost_owners_are_one_whatever_their_names() -> None:
    ann, bob = (Failure(code="lease_expired", message=f"{name} is no longer trusted") for name in ("ann", "bob"))
    assert named(ann) == named(bob)


def test_a_real_traceback_tells_the_place_that_raised() -> None:
    def fetch(key: str) -> str:
        return {"a": "b"}[key]

    def told(key: str) -> str:
        with pytest.raises(KeyError) as caught:
            fetch(key)
        return "".join(traceback.format_exception(caught.value))

    assert named(raised(told("x"))) == named(raised(told("y")))
    group = ExceptionGroup("two", [ValueError("one")])
    assert named(raised("".join(traceback.format_exception(group)))) != named(raised(told("x")))
