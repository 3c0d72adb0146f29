"""`leftfold jobs cancel` and `leftfold jobs signal`."""

from tests.e2e.command import complaint
from tests.e2e.homes import Home

from leftfold.core.lifecycle import State

NOWHERE = "00000000-0000-7000-8000-000000000000"


def test_jobs_that_nobody_holds_are_cancelled_at_once(home: Home) -> None:
    ids = [home.run("enqueue", "work").out.strip() for _ in range(2)]
    ran = home.run("jobs", "cancel", *ids, "--reason", "ordered twice")
    assert ran == (0, "".join(f"{job_id} is cancelled\n" for job_id in ids), "")
    with home.open() as engine:
        (*_, record) = engine.history(ids[0])
        assert (record.actor, record.event.reason) == ("tester", "ordered twice")  # type: ignore[union-attr]
    again = home.run("jobs", "cancel", ids[0])
    assert again.code == 4
    assert "cannot be cancelled" in again.err


def test_who_holds_a_job_is_asked_to_stop_or_loses_it(home: Home) -> None:
    ids = [home.run("enqueue", "work").out.strip() for _ in range(2)]
    with home.open() as engine:
        engine.claim("worker", limit=2, start=True)
    asked = home.run("jobs", "cancel", ids[0])
    assert asked == (0, f"{ids[0]} is running: its handler is asked to stop\n", "")
    assert home.run("jobs", "cancel", ids[0]).code == 0, "once is enough, twice is fine"
    taken = home.run("jobs", "cancel", ids[1], "--hard", "--json")
    assert (taken.code, taken.json()["state"]) == (0, "cancelled")
    with home.open() as engine:
        assert [engine.get(job_id).state for job_id in ids] == [State.RUNNING, State.CANCELLED]


def test_what_is_refused_is_said_and_the_others_are_cancelled(home: Home) -> None:
    job_id = home.run("enqueue", "work").out.strip()
    ran = home.run("jobs", "cancel", NOWHERE, job_id)
    assert ran.code == 3
    assert complaint(ran).startswith("leftfold: job_not_found: ")
    assert ran.out == f"{job_id} is cancelled\n"


def test_a_signal_answers_what_a_job_waits_for(home: Home) -> None:
    job_id = home.run("enqueue", "work").out.strip()
    with home.open() as engine:
        (claim,) = engine.claim("worker", start=True)
        engine.suspend(claim, "approved")
    wrong = home.run("jobs", "signal", job_id, "refused")
    assert (wrong.code, complaint(wrong).split(": ")[1]) == (4, "signal_conflict")
    ran = home.run("jobs", "signal", job_id[:20], "approved", '{"by": "ann"}')
    assert ran == (0, f"{job_id} is queued: answered\n", "")
    again = home.run("jobs", "signal", job_id, "approved", "-", stdin=b'{"by": "ann"}')
    assert again == (0, f"{job_id} is queued: it was answered so already\n", "")
    other = home.run("jobs", "signal", job_id, "approved", "--json")
    assert (other.code, complaint(other).split(": ")[1]) == (4, "signal_conflict")
    with home.open() as engine:
        assert bytes(engine.get(job_id).answers["approved"].payload) == b'{"by": "ann"}'


def test_a_signal_may_come_first(home: Home) -> None:
    job_id = home.run("enqueue", "work").out.strip()
    ran = home.run("jobs", "signal", job_id, "approved", "--json")
    assert (ran.code, ran.json()["state"], ran.json()["changed"]) == (0, "queued", True)
