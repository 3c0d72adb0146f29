"""`leftfold dlq incidents` and what people do with them: look, note, resolve, redrive."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.concurrency.crowd import eventually
from tests.e2e.command import around, complaint, interruptible
from tests.e2e.homes import Home
from tests.e2e.test_cli_dlq import raised, set_aside, states

from leftfold import Policy, redrive
from leftfold.store.replies import Incident

REASON = ("--reason", "the host is back")
SECONDS = 60


def name_of(home: Home, job_id: str) -> str:
    """Give the incident of a dead letter."""
    with home.open() as engine:
        return str(engine.get(job_id).incident)


def history(home: Home, job_id: str) -> list[str]:
    return [record["event"] for record in home.run("jobs", "history", job_id, "--json").lines()]


def test_letters_are_grouped_by_what_went_wrong(home: Home) -> None:
    first, second = set_aside(home, error="order 17 is gone"), set_aside(home, error="order 18 is gone")
    other = set_aside(home, error=raised())
    ran = home.run("dlq", "incidents")
    assert (ran.code, ran.err) == (0, "")
    head, *rows = ran.out.splitlines()
    assert head.split() == ["incident", "letters", "kind", "reason", "error", "last", "first", "stage"]
    assert rows[0].startswith(f"{name_of(home, other)}  1        mail  exhausted_retries  ValueError: no␛[1m route")
    assert rows[1].startswith(f"{name_of(home, first)}  2        mail  exhausted_retries  error: order 18 is gone")
    newer, older = home.run("dlq", "incidents", "--json").lines()
    assert [*newer] == [*Incident.__struct_fields__]
    assert (older["id"], older["open"], older["resolved"]) == (name_of(home, second), 2, 0)
    assert (older["oldest"], older["newest"]) == (first, second)
    assert older["first_at"] < older["last_at"] <= newer["last_at"]


def test_lists_of_incidents_go_on_behind_one(home: Home) -> None:
    names = [name_of(home, set_aside(home, kind)) for kind in ("a", "b", "c")][::-1]

    def listed(*options: str) -> list[str]:
        return [incident["id"] for incident in home.run("dlq", "incidents", "--json", *options).lines()]

    assert listed() == names
    assert listed("--kind", "b") == names[1:2]
    assert listed("--limit", "2") == names[:2]
    assert home.run("dlq", "incidents", "--limit", "2").err == f"there are more: --after {names[1]}\n"
    assert listed("--after", names[1][:8]) == names[2:]
    assert home.run("dlq", "incidents", "--limit", "3").err == ""


def test_one_is_shown_with_what_operators_said_and_its_letters(home: Home) -> None:
    ids = [set_aside(home, error=raised()) for _ in range(12)]
    name = name_of(home, ids[0])
    assert home.run("dlq", "note", "--incident", name, "--text", "asked\x1b the host") == (0, "12 letters noted\n", "")
    ran = home.run("dlq", "incident", name[:6])
    assert ran.code == 0
    assert ran.out.startswith(f"incident {name}: mail, exhausted_retries at exec\nletters: 12\n")
    assert re.search(r"^    File .*, in refuse\n", ran.out, re.MULTILINE)
    assert re.search(r"Z  tester remarked: asked\\x1b the host$", ran.out, re.MULTILINE)
    assert "\x1b" not in ran.out
    assert ids[-1] in ran.out
    assert ids[0] not in ran.out
    assert ran.err == (
        f"all of them: leftfold dlq list --incident {name}\n"
        f"\ntry them again: leftfold dlq redrive --incident {name} --reason TEXT\n"
    )
    shown = home.run("dlq", "incident", name, "--json").json()
    assert [*shown] == [*Incident.__struct_fields__, "said"]
    assert [(each["actor"], each["data"]) for each in shown["said"]] == [("tester", {"text": "asked\x1b the host"})]
    assert len(home.run("dlq", "list", "--incident", name, "--json").lines()) == 12


def test_one_that_is_not_there_is_said(home: Home) -> None:
    for command in (("incident", "0123"), ("list", "--incident", "0123"), ("redrive", "--incident", "0123", "--go")):
        ran = home.run("dlq", *command, *(REASON if command[0] == "redrive" else ()))
        assert (ran.code, ran.out) == (3, "")
        assert complaint(ran).endswith("there is no incident 0123: no dead letter is of it any more")


def test_a_note_stands_on_each_log_with_who_wrote_it(home: Home) -> None:
    first, second = set_aside(home), set_aside(home)
    ran = home.run("dlq", "note", first, "--text", "look here", "--actor", "bob", "--json")
    assert [(receipt["job_id"], receipt["state"]) for receipt in ran.lines()] == [(first, "dead_lettered")]
    last = home.run("jobs", "history", first, "--json").lines()[-1]
    assert (last["event"], last["who"], last["actor"]) == ("remarked", "operator", "bob")
    assert last["data"] == {"text": "look here"}
    assert history(home, second)[-1] == "dead_lettered"
    assert re.search(r"remarked +operator bob +look here$", home.run("jobs", "history", first).out, re.MULTILINE)


def test_what_is_resolved_needs_nobody_any_more(home: Home) -> None:
    settled, other = set_aside(home), set_aside(home, "print")
    name = name_of(home, settled)
    assert home.run("dlq", "resolve", "--incident", name, "--reason", "paid by hand") == (0, "1 letter resolved\n", "")
    assert history(home, settled)[-1] == "resolved"
    assert [letter["id"] for letter in home.run("dlq", "list", "--json").lines()] == [other]
    (letter,) = home.run("dlq", "list", "--resolved", "--json").lines()
    assert (letter["id"], letter["state"]) == (settled, "dead_lettered")
    assert letter["resolved_at"] > letter["dead_lettered_at"]
    assert re.search(rf"^incident +{name}, resolved ", home.run("dlq", "show", settled).out, re.MULTILINE)
    assert name not in home.run("dlq", "incidents").out
    assert f"{name}  0 open, 1 resolved" in home.run("dlq", "incidents", "--resolved").out
    assert home.run("dlq", "redrive", *REASON, "--go", "--json").json()["redriven"] == 1
    assert states(home)[settled] == "dead_lettered"
    assert home.run("dlq", "retry", settled, *REASON).code == 0
    assert states(home)[settled] == "queued"


def test_what_is_refused_is_said_and_the_others_are_done(home: Home) -> None:
    letter, queued = set_aside(home), home.run("enqueue", "mail").out.strip()
    ran = home.run("dlq", "resolve", queued, letter, "--reason", "known")
    assert (ran.code, ran.out) == (4, "1 letter resolved\n")
    assert complaint(ran).endswith(f"job {queued} is queued, not dead_lettered: there is nothing to resolve")
    assert history(home, letter)[-1] == "resolved"


def test_without_go_nothing_is_done(home: Home) -> None:
    ids = [set_aside(home) for _ in range(3)]
    before = home.trace()
    ran = home.run("dlq", "redrive", *REASON, "--canary", "1", "--rate", "1/m")
    assert ran.code == 0
    assert ran.out.splitlines()[1].startswith(f"{name_of(home, ids[0])}  3  ")
    assert ran.err == (
        "\n3 letters would be tried again, 1 of them first, the others if it succeeds, in 2m. "
        "Nothing is done yet: add --go\n"
    )
    plan = home.run("dlq", "redrive", *REASON, "--json").json()
    assert (plan["go"], plan["letters"], [each["open"] for each in plan["incidents"]]) == (False, 3, [3])
    assert set(states(home).values()) == {"dead_lettered"}
    assert home.is_file or home.trace() == before


def test_a_redrive_is_a_job_that_says_who_did_it_and_why(home: Home) -> None:
    ids = [set_aside(home) for _ in range(3)]
    ran = home.run("dlq", "redrive", *REASON, "--go", "--actor", "bob")
    assert ran.code == 0
    (job,) = home.run("jobs", "list", "--kind", redrive.KIND, "--json").lines()
    assert ran.out == f"3 letters will be tried again; the redrive is job {job['id']}\n"
    assert ran.err == f"redrive {job['id']}: if it is interrupted, leftfold dlq redrive --resume {job['id']}\n"
    assert (job["state"], job["queue"]) == ("succeeded", "leftfold")
    first = home.run("jobs", "history", job["id"], "--json").lines()[0]
    assert (first["actor"], first["data"]["spec"]["payload"]["reason"]) == ("bob", "the host is back")
    for job_id in ids:
        last = home.run("jobs", "history", job_id, "--json").lines()[-1]
        assert (last["event"], last["actor"], last["data"]["reason"]) == ("requeued", "bob", "the host is back")


@contextmanager
def redriving(home: Home, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start a redrive in a process of its own."""
    command = [sys.executable, "-m", "leftfold", "dlq", "redrive", *REASON, "--go", *options]
    with (
        interruptible(),
        subprocess.Popen(
            command, cwd=home.folder, env=around(home.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def tried_again(home: Home, ids: list[str]) -> int:
    with home.open() as engine:
        return sum(engine.get(job_id).state == "queued" for job_id in ids)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_one_that_is_interrupted_is_given_back_and_goes_on(home: Home, number: int, code: int) -> None:
    ids = [set_aside(home) for _ in range(3)]
    with redriving(home, "--rate", "1/m") as process:
        eventually(lambda: tried_again(home, ids) == 1, SECONDS)
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (code, "")
    (job,) = home.run("jobs", "list", "--kind", redrive.KIND, "--json").lines()
    assert err == f"redrive {job['id']}: if it is interrupted, leftfold dlq redrive --resume {job['id']}\n"
    assert job["state"] == "queued"
    assert tried_again(home, ids) == 1
    last = home.run("jobs", "history", job["id"], "--json").lines()[-2:]
    assert [record["data"].get("message", record["data"].get("reason")) for record in last] == ["1 of 3", "interrupted"]


def test_one_that_is_killed_goes_on_where_it_was(home: Home) -> None:
    ids = [set_aside(home) for _ in range(5)]
    with redriving(home, "--rate", "4/s") as process:
        eventually(lambda: tried_again(home, ids) >= 2, SECONDS)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
    (job,) = home.run("jobs", "list", "--kind", redrive.KIND, "--json").lines()
    if job["state"] == "running":
        ran = home.run("dlq", "redrive", "--resume", job["id"])
        assert ran.code == 4
        assert "is under way: redrive " in ran.err
        with home.open() as engine:
            engine.stall(job["id"], reason="its process is gone")  # or the lease runs out
    ended = home.run(
        "dlq", "redrive", "--resume", job["id"], "--reason", "went away", "--actor", "bob", "--json"
    ).json()
    assert (ended["phase"], ended["letters"]) == ("done", 5)
    assert [*ended] == [*redrive.Step.__struct_fields__]
    told = home.run("jobs", "history", job["id"], "--json").lines()
    assert [(each["actor"], each["data"]) for each in told if each["event"] == "remarked"] == [
        ("bob", {"text": "went away"})
    ]
    assert tried_again(home, ids) == 5
    for job_id in ids:
        assert history(home, job_id).count("requeued") == 1
    assert home.run("verify").code == 0


def test_a_canary_that_fails_ends_it_with_an_exit_code(home: Home) -> None:
    ids = [set_aside(home) for _ in range(3)]
    with redriving(home, "--canary", "1") as process:
        eventually(lambda: tried_again(home, ids) == 1, SECONDS)
        with home.open() as engine:
            (claim,) = engine.claim("worker-a", kinds=["mail"], start=True)
            engine.fail(claim, "no route")
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert err.startswith("redrive ")
    told = f"1 of 1 canaries did not succeed, the first of them is {claim.job_id}, which is dead_lettered"
    assert out == f"stopped: {told}; the other letters were left alone\n"
    assert tried_again(home, ids) == 0


def test_a_letter_that_cannot_be_tried_again_is_named_and_the_exit_code_says_so(home: Home) -> None:
    with home.open() as engine:
        taken = engine.enqueue("mail", key="k", policy=Policy(max_failures=1)).job_id
        (claim,) = engine.claim("worker-a", job_id=taken)
        engine.start(claim)
        engine.fail(claim, "no route")
        engine.enqueue("mail", key="k")
    other = set_aside(home)
    ran = home.run("dlq", "redrive", *REASON, "--go")
    (job,) = home.run("jobs", "list", "--kind", redrive.KIND, "--json").lines()
    assert ran.code == 1
    assert ran.out == f"1 letter will be tried again, 1 cannot be; the redrive is job {job['id']}\n"
    assert f"leftfold: key_taken: job {taken}: job {taken} cannot have its key: another live job holds it" in ran.err
    assert states(home)[other] == "queued"
    result = home.run("jobs", "show", job["id"], "--json").json()["result"]
    assert [refusal["job_id"] for refusal in result["refusals"]] == [taken]


def test_a_name_of_an_incident_that_is_none_is_no_log(home: Home) -> None:
    job_id = set_aside(home)
    name = name_of(home, job_id)
    exported = home.run("export").out.replace(name, "\\\\u001b]0;EVIL\\\\u0007")
    with home.open() as engine:
        engine.requeue(job_id, reason="make room")
    ran = home.run("import", "-", stdin=exported.encode())
    assert ran.code != 0
    assert "\x1b" not in ran.out + ran.err


@pytest.mark.parametrize(("given", "rate"), [("3", 3.0), ("3/s", 3.0), ("90/m", 1.5), ("1800/h", 0.5), ("0.5", 0.5)])
def test_rates_are_read(file_home: Home, given: str, rate: float) -> None:
    set_aside(file_home.migrated())
    file_home.run("dlq", "redrive", *REASON, "--rate", given, "--go")
    (job,) = file_home.run("jobs", "list", "--kind", redrive.KIND, "--json").lines()
    assert file_home.run("jobs", "show", job["id"], "--json").json()["payload"]["rate"] == rate
