"""Bad input is refused in the same words by both stores, in one line, and leaves no trace."""

from pathlib import Path

import pytest
from tests.e2e.command import complaint
from tests.e2e.homes import Home

from leftfold.core import limits

LONG = "x" * (limits.KEY_CHARS_MAX + 1)
BYTE = "\udcff"  # how Python gives us a byte of the command line that is not UTF-8
NOWHERE = "01a1e1c2-10a9-7000-8001-e53228ef1971"

ENQUEUE = {
    "malformed": ["k", '{"a": 1,}'],
    "cut off": ["k", '{"a":'],
    "two values": ["k", "1 2"],
    "no JSON at all": ["k", "hello"],
    "empty": ["k", ""],
    "only blanks": ["k", "  "],
    "NaN": ["k", "NaN"],
    "NaN inside": ["k", '{"a": [NaN, null]}'],
    "Infinity": ["k", "-Infinity"],
    "past a float": ["k", '{"a": 1e999}'],
    "2^63": ["k", str(2**63)],
    "below -2^63": ["k", f"[{-(2**63) - 1}]"],
    "NUL": ["k", r'{"a": "\u0000"}'],
    "NUL in a key": ["k", r'{"\u0000": 1}'],
    "lone surrogate": ["k", r'["\ud800"]'],
    "a name twice": ["k", '{"a": 1, "b": [{"a": 1, "a": 2}]}'],
    "a name twice, spelled in two ways": ["k", r'{"a": 1, "\u0061": 2}'],
    "a byte that is not UTF-8": ["k", f'"{BYTE}"'],
    "too deep": ["k", "[" * 101 + "]" * 101],
    "far too deep": ["k", "[" * 50_000 + "]" * 50_000],
    "no such file": ["k", "@nowhere.json"],
    "a folder": ["k", "@."],
    "a file's name that would speak to the terminal": ["k", "@no\nsuch\x1b]0;file\x07"],
    "no kind": [""],
    "kind with a blank": ["two words"],
    "kind with a byte": [f"k{BYTE}"],
    "kind too long": ["k" * (limits.NAME_CHARS_MAX + 1)],
    "queue": ["k", "--queue", "two words"],
    "queue with a byte": ["k", "--queue", BYTE],
    "no queue": ["k", "--queue", ""],
    "priority": ["k", "--priority", "high"],
    "priority in digits of another script": ["k", "--priority", "٣"],
    "priority too high": ["k", "--priority", "40000"],
    "priority of 2^63": ["k", "--priority", str(2**63)],
    "due": ["k", "--due", "soon"],
    "due before now": ["k", "--due", "-5"],
    "due without a zone": ["k", "--due", "2026-12-24T18:00:00"],
    "due too far": ["k", "--due", "3651d"],
    "due at the beginning of time": ["k", "--due", "0001-01-01T00:00:00Z"],
    "due in 2^63 days": ["k", "--due", f"{2**63}d"],
    "due with a byte": ["k", "--due", BYTE],
    "key": ["k", "--key", ""],
    "key too long": ["k", "--key", LONG],
    "key with a control character": ["k", "--key", "a\x1bb"],
    "key with a byte": ["k", "--key", BYTE],
    "on-conflict": ["k", "--on-conflict", "shrug"],
    "correlation id": ["k", "--correlation-id", "a\nb"],
    "cause": ["k", "--cause", LONG],
    "tenant": ["k", "--tenant", "two words"],
    "request id": ["k", "--request-id", ""],
    "after": ["k", "--after", "nobody"],
    "after with a byte": ["k", "--after", BYTE],
    "max-failures": ["k", "--max-failures", "0"],
    "max-failures of 2^63": ["k", "--max-failures", str(2**63)],
    "max-failures in words": ["k", "--max-failures", "three"],
    "lease too short": ["k", "--lease", "0"],
    "lease too long": ["k", "--lease", "2d"],
    "lease": ["k", "--lease", "a while"],
    "timeout": ["k", "--timeout", "0"],
    "actor": ["k", "--actor", "a\nb"],
    "an option that there is not": ["k", "--nonsense"],
    "no arguments": [],
    "too many arguments": ["k", "1", "2"],
}  # fmt: skip

OTHERS = {
    "list: state": ["jobs", "list", "--state", "nonsense"],
    "list: limit 0": ["jobs", "list", "--limit", "0"],
    "list: limit too high": ["jobs", "list", "--limit", "1001"],
    "list: limit 2^63": ["jobs", "list", "--limit", str(2**63)],
    "list: limit in words": ["jobs", "list", "--limit", "all"],
    "list: limit and all": ["jobs", "list", "--limit", "5", "--all"],
    "list: after": ["jobs", "list", "--after", "nobody"],
    "list: kind": ["jobs", "list", "--kind", "two words"],
    "list: queue with a byte": ["jobs", "list", "--queue", BYTE],
    "list: tenant": ["jobs", "list", "--tenant", BYTE],
    "list: key": ["jobs", "list", "--key", ""],
    "list: correlation id": ["jobs", "list", "--correlation-id", BYTE],
    "list: owner": ["jobs", "list", "--owner", "a\x01"],
    "show: nothing": ["jobs", "show", ""],
    "show: no id": ["jobs", "show", "nobody"],
    "show: a byte": ["jobs", "show", BYTE],
    "show: too long": ["jobs", "show", NOWHERE + "0"],
    "show: dialect": ["jobs", "show", NOWHERE, "--dialect", "klingon"],
    "history: no id": ["jobs", "history", "01a1-nobody"],
    "cancel: nothing": ["jobs", "cancel"],
    "cancel: no id": ["jobs", "cancel", NOWHERE, "nobody"],
    "cancel: reason with a byte": ["jobs", "cancel", NOWHERE, "--reason", BYTE],
    "cancel: actor": ["jobs", "cancel", NOWHERE, "--actor", "a\nb"],
    "signal: no key": ["jobs", "signal", NOWHERE],
    "signal: no id": ["jobs", "signal", "nobody", "go"],
    "signal: key": ["jobs", "signal", NOWHERE, "two words"],
    "signal: payload": ["jobs", "signal", NOWHERE, "go", "{"],
    "pause: name": ["queues", "pause", "two words"],
    "pause: reason with a byte": ["queues", "pause", "default", "--reason", BYTE],
    "pause: reason too long": ["queues", "pause", "default", "--reason", "x" * (limits.TEXT_CHARS_MAX + 1)],
    "pause: actor": ["queues", "pause", "default", "--actor", BYTE],
    "resume: name": ["queues", "resume", ""],
    "verify: job": ["verify", "--job", "nobody"],
    "verify: since": ["verify", "--since", "yesterday"],
    "verify: since without a zone": ["verify", "--since", "2026-12-24T18:00:00"],
    "verify: since too long ago": ["verify", "--since", f"{2**63}d"],
    "verify: job and since": ["verify", "--job", NOWHERE, "--since", "2h"],
    "verify: file and job": ["verify", "--job", NOWHERE, "--file", "-"],
    "verify: actor": ["verify", "--actor", "a\nb"],
    "rebuild: nothing": ["rebuild", "--reason", "x"],
    "rebuild: no reason": ["rebuild", "--all"],
    "rebuild: an empty reason": ["rebuild", "--all", "--reason", " "],
    "rebuild: reason with a byte": ["rebuild", "--all", "--reason", BYTE],
    "rebuild: a job and all": ["rebuild", NOWHERE, "--all", "--reason", "x"],
    "rebuild: no id": ["rebuild", NOWHERE, "nobody", "--reason", "x"],
    "export: job": ["export", "--job", "nobody"],
    "export: state": ["export", "--state", "nonsense"],
    "export: queue": ["export", "--queue", "two words"],
    "export: kind with a byte": ["export", "--kind", BYTE],
    "export: tenant": ["export", "--tenant", "two words"],
    "export: since": ["export", "--since", "soon"],
    "import: nothing": ["import"],
    "import: no such file": ["import", "nowhere.jsonl"],
    "feed: consumer": ["feed", "read", "two words"],
    "feed: consumer with a byte": ["feed", "read", BYTE],
    "feed: limit 0": ["feed", "read", "archive", "--limit", "0"],
    "feed: limit in words": ["feed", "read", "archive", "--limit", "all"],
    "feed: start": ["feed", "read", "archive", "--start", "yesterday"],
    "feed: forget": ["feed", "forget", ""],
    "migrate: two forms": ["migrate", "--dump-sql", "--json"],
    "migrate: dialect alone": ["migrate", "--dialect", "sqlite"],
    "migrate: dialect": ["migrate", "--dump-sql", "--dialect", "oracle"],
}  # fmt: skip
CASES = {**{f"enqueue: {name}": ["enqueue", *each] for name, each in ENQUEUE.items()}, **OTHERS}
#: One of each way to be wrong; the others are refused before anybody looks whether there is a store.
SOME = [
    "enqueue: malformed", "enqueue: 2^63", "enqueue: queue", "enqueue: due too far", "enqueue: after",
    "enqueue: max-failures", "enqueue: actor", "list: limit 0", "list: after", "list: owner", "show: no id",
    "pause: name", "pause: reason with a byte", "pause: actor", "resume: name",
]  # fmt: skip


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)
def test_bad_input_is_refused_alike_and_makes_no_store(both: tuple[Home, Home], arguments: list[str]) -> None:
    before = [home.trace() for home in both]
    ran = [home.run(*arguments) for home in both]
    assert ran[0] == ran[1]
    assert (ran[0].code, ran[0].out) == (2, "")
    assert complaint(ran[0]).startswith(
        ("leftfold: validation_failed: ", "leftfold: limit_exceeded: ", "leftfold: usage: ")
    )
    assert [home.trace() for home in both] == before


def test_bad_input_leaves_what_is_there_as_it_is(home: Home) -> None:
    home.run("enqueue", "refund", "--key", "order:1")
    before = home.trace()
    for name in SOME:
        assert home.run(*CASES[name]).code == 2, name
    assert home.trace() == before


@pytest.mark.parametrize("by", ["-", "@payload.json"])
def test_a_payload_may_be_as_long_as_allowed_and_no_longer(home: Home, by: str) -> None:
    def enqueue(payload: bytes) -> tuple[int, str]:
        (home.folder / "payload.json").write_bytes(payload)
        ran = home.run("enqueue", "big", by, stdin=payload)
        return ran.code, ran.err

    longest = b'"' + b"x" * (limits.PAYLOAD_BYTES_MAX - 2) + b'"'
    assert enqueue(longest + b"\r\n") == (0, "")
    code, said = enqueue(longest[:-1] + b'x"\n')
    assert (code, said.partition(": payload")[0]) == (2, "leftfold: limit_exceeded")
    assert len(home.run("jobs", "list", "--json").lines()) == 1


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"\xef\xbb\xbf{}", b'"\x00"', b"{}\x00"])
def test_what_comes_by_standard_input_is_checked_as_well(home: Home, content: bytes) -> None:
    ran = home.run("enqueue", "k", "-", stdin=content)
    assert (ran.code, ran.out) == (2, "")
    assert complaint(ran).startswith("leftfold: validation_failed: payload ")
    assert home.run("jobs", "list", "--json").out == ""


def test_input_without_an_end_is_not_waited_for(home: Home) -> None:
    ran = home.run("enqueue", "k", "@/dev/zero")
    assert ran.code == 2
    assert complaint(ran).startswith("leftfold: limit_exceeded: payload ")


@pytest.mark.parametrize(
    "command",
    [
        ["jobs", "list"], ["jobs", "list", "--json"], ["jobs", "show", NOWHERE], ["jobs", "history", NOWHERE],
        ["queues", "list"], ["queues", "pause", "default"], ["queues", "resume", "default"],
        ["enqueue", "k", "--after", NOWHERE],
        ["verify"], ["verify", "--job", NOWHERE], ["rebuild", "--all", "--reason", "x"], ["export"],
        ["feed", "list"], ["feed", "read", "archive", "--start", "now"], ["feed", "forget", "archive"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_where_there_is_no_store_none_is_made(bare: Home, command: list[str]) -> None:
    before = bare.trace()
    ran = bare.run(*command)
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).startswith("leftfold: store_not_ready: ")
    assert "leftfold migrate" in ran.err
    assert bare.trace() == before


@pytest.mark.parametrize("command", [["jobs", "show", NOWHERE], ["jobs", "history", NOWHERE[:10]]], ids=" ".join)
def test_a_job_that_is_not_there_is_not_found(home: Home, command: list[str]) -> None:
    ran = home.run(*command)
    assert (ran.code, ran.out) == (3, "")
    assert complaint(ran) == f"leftfold: job_not_found: there is no job {command[-1]}"


def test_a_job_to_wait_for_that_is_not_there_is_not_found(home: Home) -> None:
    before = home.trace()
    ran = home.run("enqueue", "k", "--after", NOWHERE)
    assert (ran.code, ran.out) == (3, "")
    assert home.trace() == before


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, file_home: Home) -> None:
    url = f"sqlite:///{tmp_path}/no/such/jobs.db"
    for command, said in (
        (["enqueue", "k"], "there is no folder"),
        (["migrate"], "there is no folder"),
        (["jobs", "list"], "there is no store"),
    ):
        ran = file_home.run(*command, "--store", url)
        assert (ran.code, ran.out) == (1, "")
        assert said in complaint(ran)
    assert file_home.trace() == {}
