"""`leftfold dlq`: what was set aside, why, and how it is tried again."""

import re

import pytest
from tests.e2e.command import complaint
from tests.e2e.homes import Home

from leftfold import Policy
from leftfold.core import events as e

LETTER = ["id", "kind", "queue", "state", "dead_lettered_at", "resolved_at", *e.DeadLettered.__struct_fields__]
REASON = ("--reason", "the host is back")


def set_aside(home: Home, kind: str = "mail", queue: str = "default", error: str | Exception = "no route") -> str:
    """Make a dead letter, and give its id."""
    with home.open() as engine:
        job_id = engine.enqueue(kind, {"to": "ann"}, queue=queue, policy=Policy(max_failures=1)).job_id
        (claim,) = engine.claim("worker-a", job_id=job_id)
        engine.start(claim)
        engine.fail(claim, error)
    return job_id


def refuse() -> None:
    raise ValueError("no\x1b[1m route\nto host")


def raised() -> Exception:
    with pytest.raises(ValueError, match="no") as caught:
        refuse()
    return caught.value


def states(home: Home) -> dict[str, str]:
    return {job["id"]: job["state"] for job in home.run("jobs", "list", "--json").lines()}


def test_without_dead_letters_there_is_nothing_to_list_or_to_redrive(home: Home) -> None:
    home.run("enqueue", "mail")
    assert home.run("dlq", "list") == (0, "", "no dead letters\n")
    assert home.run("dlq", "list", "--json") == (0, "", "")
    assert home.run("dlq", "incidents") == (0, "", "no incidents\n")
    assert home.run("dlq", "incidents", "--json") == (0, "", "")
    for options in ((), ("--go",)):
        assert home.run("dlq", "redrive", *REASON, *options) == (0, "", "no dead letters\n")
    assert home.run("dlq", "redrive", *REASON, "--json").json() == {"go": False, "letters": 0, "incidents": []}


def test_dead_letters_are_listed_with_reason_and_error_the_newest_first(home: Home) -> None:
    first, second = set_aside(home, error=raised()), set_aside(home, "print", "slow")
    home.run("enqueue", "mail")
    ran = home.run("dlq", "list")
    assert (ran.code, ran.err) == (0, "")
    head, *rows = ran.out.splitlines()
    assert head.split() == ["id", "kind", "reason", "error", "since", "attempts", "queue", "stage", "incident"]
    assert [row.split()[:3] for row in rows] == [
        [second, "print", "exhausted_retries"],
        [first, "mail", "exhausted_retries"],
    ]
    assert "  ValueError: no␛[1m route  " in rows[1]
    newer, older = home.run("dlq", "list", "--json").lines()
    assert [*newer] == LETTER
    assert (newer["id"], newer["queue"], newer["state"]) == (second, "slow", "dead_lettered")
    assert (older["error"]["type"], older["error"]["message"]) == ("ValueError", "no␛[1m route\nto host")
    assert (older["reason_code"], older["stage"], older["attempts"]) == ("exhausted_retries", "exec", 1)
    assert older["last_owner"] == "worker-a"


def test_a_narrow_terminal_gets_the_columns_that_it_has_room_for(file_home: Home) -> None:
    job_id = set_aside(file_home.migrated())
    shown = re.sub(r"\x1b\[[0-9;]*m", "", file_home.watched("dlq", "list", columns=50).out)
    assert shown.splitlines()[0].split() == ["id", "kind", "reason"]
    assert shown.splitlines()[1].startswith(f"{job_id[:18]}  mail")


def test_lists_are_chosen_by_queue_and_kind_and_go_on_behind_a_job(home: Home) -> None:
    ids = [set_aside(home, kind, queue) for kind, queue in (("mail", "a"), ("mail", "b"), ("print", "b"))]

    def listed(*options: str) -> list[int]:
        return [ids.index(letter["id"]) for letter in home.run("dlq", "list", "--json", *options).lines()]

    assert listed() == [2, 1, 0]
    assert listed("--kind", "mail") == [1, 0]
    assert listed("--queue", "b") == [2, 1]
    assert listed("--queue", "b", "--kind", "mail") == [1]
    assert listed("--limit", "1") == [2]
    assert home.run("dlq", "list", "--limit", "1").err == f"there are more: --after {ids[2]}\n"
    assert listed("--after", ids[2]) == [1, 0]


def test_one_is_shown_with_its_traceback_and_its_history(home: Home) -> None:
    job_id = set_aside(home, error=raised())
    ran = home.run("dlq", "show", job_id)
    assert ran.code == 0
    assert ran.err == f"\ntry it again: leftfold dlq retry {job_id} --reason TEXT\n"
    assert re.search(r"^set aside .*, after 1 attempt: exhausted_retries at exec$", ran.out, re.MULTILINE)
    assert re.search(
        r"^  Traceback \(most recent call last\):\n    File .*, in raised\n(    .*\n)+    File .*, in refuse\n",
        ran.out,
        re.MULTILINE,
    )
    assert "\x1b" not in ran.out
    assert re.search(r"^4  .*  dead_lettered  owner worker-a  ", ran.out, re.MULTILINE)
    shown = home.run("dlq", "show", job_id[:20], "--json").json()
    assert [*shown] == [*LETTER, "history"]
    assert [record["event"] for record in shown["history"]] == ["enqueued", "claimed", "started", "dead_lettered"]


def test_one_that_is_tried_again_can_still_be_shown(home: Home) -> None:
    job_id = set_aside(home)
    home.run("dlq", "retry", job_id, *REASON)
    ran = home.run("dlq", "show", job_id)
    assert (ran.code, ran.err) == (0, "")
    assert "exhausted_retries at exec" in ran.out


def test_what_is_no_dead_letter_is_not_shown_as_one(home: Home) -> None:
    job_id = home.run("enqueue", "mail").out.strip()
    ran = home.run("dlq", "show", job_id)
    assert (ran.code, ran.out) == (2, "")
    assert "is not a dead letter and never was: see `leftfold jobs show`" in complaint(ran)
    assert home.run("dlq", "show", "0" * 32).code == 3
    assert home.run("dlq", "show", "zz").code == 2


def test_one_is_tried_again_and_the_reason_stands_on_its_log(home: Home) -> None:
    job_id, other = set_aside(home), set_aside(home)
    assert home.run("dlq", "retry", job_id, *REASON) == (0, "1 job will be tried again\n", "")
    assert states(home) == {job_id: "queued", other: "dead_lettered"}
    last = home.run("jobs", "history", job_id, "--json").lines()[-1]
    assert (last["event"], last["who"], last["actor"]) == ("requeued", "operator", "tester")
    assert last["data"]["reason"] == "the host is back"
    assert home.run("jobs", "show", job_id, "--json").json()["failures"] == 0
    receipt = home.run("dlq", "retry", other, *REASON, "--actor", "bob", "--json").json()
    assert (receipt["job_id"], receipt["state"], receipt["changed"]) == (other, "queued", True)
    assert home.run("jobs", "history", other, "--json").lines()[-1]["actor"] == "bob"


@pytest.mark.parametrize(
    ("options", "chosen"),
    [([], {0, 1, 2}), (["--kind", "mail"], {0, 1}), (["--queue", "b"], {1, 2}),
     (["--queue", "b", "--kind", "mail"], {1}), (["--kind", "none"], set())],
    ids=str,
)  # fmt: skip
def test_all_are_tried_again_or_those_of_a_kind_and_queue(home: Home, options: list[str], chosen: set[int]) -> None:
    ids = [set_aside(home, kind, queue) for kind, queue in (("mail", "a"), ("mail", "b"), ("print", "b"))]
    ran = home.run("dlq", "redrive", *options, *REASON, "--go", "--json")
    assert ran.code == 0
    assert ran.json().get("redriven", 0) == len(chosen)
    now = states(home)
    assert {number for number, job_id in enumerate(ids) if now[job_id] == "queued"} == chosen


def test_what_is_refused_is_said_and_the_others_are_tried_again(home: Home) -> None:
    letter, queued = set_aside(home), home.run("enqueue", "mail").out.strip()
    ran = home.run("dlq", "retry", queued, letter, *REASON)
    assert (ran.code, ran.out) == (4, "1 job will be tried again\n")
    problem = f"job {queued} is queued, not dead_lettered: there is nothing to try again"
    assert complaint(ran) == f"leftfold: illegal_transition: {problem}"
    assert states(home) == {letter: "queued", queued: "queued"}
    assert len(home.run("jobs", "history", queued, "--json").lines()) == 1
    unknown = home.run("dlq", "retry", "01a1e345-922b-704a-8003-e03fe841a4f0", *REASON)
    assert (unknown.code, unknown.out) == (3, "0 jobs will be tried again\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["retry", "01a1"], "Missing option '--reason'"),
        (["retry", "01a1", "--reason", " "], "reason is empty: it stands on the log, so that others know"),
        (["retry", "--reason", "x"], "Missing argument 'ID...'"),
        (["retry", "zz", "--reason", "x"], "'zz' is not a job id, nor the beginning of one"),
        (["redrive", "--go"], "Missing option '--reason'"),
        (["redrive", "--go", "--reason", "\t"], "reason is empty"),
        (["redrive", "--go", "--reason", "x", "--kind", "a b"], "kind 'a b' is not a name"),
        (["redrive", "--go", "--reason", "x", "--incident", "zz"], "'zz' is not an incident"),
        (["redrive", "--go", "--reason", "x", "--rate", "fast"], "'fast' is not a rate: write 10/s, 100/m or 1000/h"),
        (["redrive", "--go", "--reason", "x", "--rate", "0/s"], "rate is 0 jobs per second"),
        (["redrive", "--go", "--reason", "x", "--canary", "101"], "101 is not in the range 0<=x<=100"),
        (["redrive", "--resume", "01a1", "--go"], "--resume goes on as it was begun"),
        (["redrive", "--resume", "01a1", "--kind", "mail"], "--resume goes on as it was begun"),
        (["redrive", "--resume", "zz"], "'zz' is not a job id"),
        (["note", "--text", "x"], "name jobs, or an --incident"),
        (["note", "01a1", "--incident", "ab", "--text", "x"], "choose one of ID and --incident"),
        (["note", "--incident", "zz", "--text", "x"], "'zz' is not an incident"),
        (["note", "zz", "--text", "x"], "'zz' is not a job id"),
        (["note", "01a1"], "Missing option '--text'"),
        (["note", "01a1", "--text", " "], "text is empty"),
        (["resolve", "--reason", "x"], "name jobs, or an --incident"),
        (["resolve", "01a1"], "Missing option '--reason'"),
        (["resolve", "01a1", "--reason", ""], "reason is empty"),
        (["incident", "zz"], "'zz' is not an incident: `leftfold dlq incidents` tells their names"),
        (["incidents", "--kind", "a b"], "kind 'a b' is not a name"),
        (["list", "--incident", "zz"], "'zz' is not an incident"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_does_nothing(file_home: Home, options: list[str], problem: str) -> None:
    job_id = set_aside(file_home.migrated())
    before = file_home.run("jobs", "history", job_id).out
    ran = file_home.run("dlq", *options)
    assert (ran.code, ran.out) == (2, "")
    assert problem in complaint(ran)
    assert states(file_home) == {job_id: "dead_lettered"}
    assert file_home.run("jobs", "history", job_id).out == before
