"""`leftfold enqueue`: a job per call, its id on standard output, everything else on request."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.e2e.command import complaint
from tests.e2e.homes import Home

from leftfold.core.limits import SECOND
from leftfold.times import to_datetime

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def test_the_id_and_nothing_else_is_printed(home: Home) -> None:
    ran = home.run("enqueue", "refund")
    assert (ran.code, ran.err) == (0, "")
    assert ID.fullmatch(ran.out.strip())
    assert ran.out.endswith("\n")
    with home.open() as engine:
        job = engine.get(ran.out.strip())
    assert (job.spec.kind, job.payload, job.spec.queue, job.state) == ("refund", None, "default", "queued")


def test_a_file_is_made_by_the_first_job(file_home: Home) -> None:
    assert file_home.run("enqueue", "refund").code == 0
    assert [file.name for file in file_home.folder.iterdir()] == ["jobs.db"]


def test_a_receipt_as_json(home: Home) -> None:
    receipt = home.run("enqueue", "refund", "--json").json()
    assert ID.fullmatch(receipt.pop("job_id"))
    assert receipt == {
        "state": "queued", "version": 1, "rev": 1, "attempt": 0, "until": None, "cancel_requested": False,
        "changed": True,
    }  # fmt: skip


PAYLOADS = ['{"order": 42}', "null", "0", '""', "[]", '"ü 漢字 🎉"', '{"a": null}', "9223372036854775807", "1.0", " 1 "]


@pytest.mark.parametrize("way", ["argument", "stdin", "file"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_comes_as_it_was_given(home: Home, way: str, payload: str) -> None:
    (home.folder / "payload.json").write_text(f"{payload}\n", encoding="utf-8")
    argument = {"argument": payload, "stdin": "-", "file": "@payload.json"}[way]
    ran = home.run("enqueue", "refund", argument, stdin=f"\n{payload}\n".encode() if way == "stdin" else None)
    assert (ran.code, ran.err) == (0, "")
    with home.open() as engine:
        assert bytes(engine.get(ran.out.strip()).spec.payload).decode() == payload.strip()


def test_a_number_below_zero_needs_the_two_dashes(home: Home) -> None:
    ran = home.run("enqueue", "refund", "--", "-5")
    with home.open() as engine:
        assert engine.get(ran.out.strip()).payload == -5


def test_everything_that_can_be_said_of_a_job(home: Home) -> None:
    ran = home.run(
        "enqueue", "refund", '{"order": 42}', "--queue", "slow", "--priority", "P1", "--key", "order:42",
        "--correlation-id", "checkout 7", "--cause", "click", "--tenant", "acme", "--max-failures", "3",
        "--lease", "90s", "--timeout", "10m", "--on-exhausted", "fail", "--hold-stalled", "--actor", "bob",
    )  # fmt: skip
    with home.open() as engine:
        job = engine.get(ran.out.strip())
        (record,) = engine.history(job.id)
    spec, policy = job.spec, job.policy
    assert (spec.queue, spec.priority, spec.key, spec.tenant) == ("slow", 20, "order:42", "acme")
    assert (spec.correlation_id, spec.cause) == ("checkout 7", "click")
    assert (policy.max_failures, policy.lease, policy.timeout) == (3, 90 * SECOND, 600 * SECOND)
    assert (policy.on_exhausted, policy.hold_stalled) == ("fail", True)
    assert record.actor == "bob"


@pytest.mark.parametrize(
    ("due", "seconds"),
    [("30", 30), ("30s", 30), ("1.5m", 90), ("5m", 300), ("2h", 7200), ("1d", 86_400), ("0", 0), ("0.25", 0.25)],
)
def test_due_in_so_much_time(home: Home, due: str, seconds: float) -> None:
    with home.open() as engine:
        job = engine.get(home.run("enqueue", "refund", "--due", due).out.strip())
    assert job.due is not None
    assert job.due - job.created_at == seconds * SECOND


@pytest.mark.parametrize("zone", ["+01:00", "Z", "-11:30"])
def test_due_at_a_moment(home: Home, zone: str) -> None:
    moment = (datetime.now(UTC) + timedelta(days=400)).strftime(f"%Y-%m-%dT18:00:00{zone}")
    with home.open() as engine:
        job = engine.get(home.run("enqueue", "refund", "--due", moment).out.strip())
    assert job.due is not None
    assert to_datetime(job.due) == datetime.fromisoformat(moment)


def test_a_moment_without_a_zone_could_be_any(file_home: Home) -> None:
    said = complaint(file_home.run("enqueue", "refund", "--due", "2026-12-24 18:00"))
    assert said.endswith("due '2026-12-24 18:00' has no time zone: put Z or one like +01:00 behind it")


def test_a_moment_that_has_passed_is_now(home: Home) -> None:
    with home.open() as engine:
        job = engine.get(home.run("enqueue", "refund", "--due", "1999-12-31T23:59:59Z").out.strip())
    assert job.due == job.created_at


def test_a_key_that_is_taken(home: Home) -> None:
    first = home.run("enqueue", "refund", "--key", "order:42")
    again = home.run("enqueue", "refund", "--key", "order:42", "--json")
    assert (again.json()["job_id"], again.json()["changed"]) == (first.out.strip(), False)

    refused = home.run("enqueue", "refund", "--key", "order:42", "--on-conflict", "raise")
    assert (refused.code, refused.out) == (4, "")
    assert complaint(refused).startswith("leftfold: key_taken: ")

    assert home.run("enqueue", "refund", "--key", "order:42", "--on-conflict", "skip") == (0, "", "")
    assert home.run("enqueue", "refund", "--key", "order:42", "--on-conflict", "skip", "--json") == (0, "null\n", "")

    other = home.run("enqueue", "refund", "--key", "order:42", "--on-conflict", "replace").out.strip()
    with home.open() as engine:
        assert engine.get(first.out.strip()).state == "cancelled"
        assert engine.get(other).state == "queued"


def test_a_request_happens_once(home: Home) -> None:
    ran = [home.run("enqueue", "refund", "1", "--request-id", "click-1") for _ in range(2)]
    assert ran[0] == ran[1]
    otherwise = home.run("enqueue", "refund", "2", "--request-id", "click-1")
    assert (otherwise.code, otherwise.out) == (4, "")
    assert complaint(otherwise).startswith("leftfold: request_reused: ")
    assert len(home.run("jobs", "list", "--json").lines()) == 1


@pytest.mark.parametrize("length", [36, 23])
def test_a_job_after_others_named_by_the_beginnings_of_their_ids(home: Home, length: int) -> None:
    others = [home.run("enqueue", "import").out.strip() for _ in range(2)]
    named = [word for other in others for word in ("--after", other[:length])]
    ran = home.run("enqueue", "report", *named)
    with home.open() as engine:
        job = engine.get(ran.out.strip())
    assert job.state == "waiting"
    assert job.wait is not None
    assert [*job.wait.jobs] == others


def test_a_person_is_told_what_was_done(home: Home) -> None:
    shown = home.watched("enqueue", "refund", "--due", "5m", NO_COLOR="1").out.splitlines()
    assert ID.fullmatch(shown[0])
    assert shown[1:] == ["queued: refund in default, due in 5m"]
    ran = home.run("enqueue", "refund", "--key", "a", "--verbose")
    assert ID.fullmatch(ran.out.strip())
    assert ran.err == "queued: refund in default\n"
    assert home.run("enqueue", "refund", "--key", "a", "-v").err == (
        "nothing was made: this job has the key a, and is queued\n"
    )
    assert home.run("enqueue", "refund", "--key", "a", "-v", "--on-conflict", "skip").err == (
        "nothing was made: a live job has the key a\n"
    )


def test_json_on_a_terminal_is_json(home: Home) -> None:
    assert ID.fullmatch(json.loads(home.watched("enqueue", "refund", "--json").out)["job_id"])
