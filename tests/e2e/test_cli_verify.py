"""`leftfold verify` and `leftfold rebuild`: what cannot be so is found, named, frozen and, where it can be, mended."""

import re
from typing import Any

import pytest
from tests.e2e.command import complaint
from tests.e2e.homes import Home

from leftfold import NewJob

NOWHERE = "01a1e1c2-10a9-7000-8001-e53228ef1971"


def some_jobs(home: Home) -> list[str]:
    """Make three jobs, the first of which has run."""
    with home.open() as engine:
        ids = [engine.enqueue("work", {"n": n}).job_id for n in range(3)]
        (claim,) = engine.claim("worker-a", limit=1)
        engine.start(claim)
        engine.complete(claim, "done")
    return ids


def drift(home: Home, *, failures: int = 7) -> None:
    """Let the row of the job that has run say what its log does not."""
    home.tamper(f"UPDATE {{schema}}.jobs SET failures = {failures} WHERE version > 1")  # noqa: S608


def corrupt(home: Home) -> None:
    """Change an event of the job that has run."""
    home.tamper("UPDATE {schema}.events SET at = at + 1 WHERE version = 2")


def frozen(home: Home) -> list[str]:
    return [job["id"] for job in home.run("jobs", "list", "--json").lines() if job["frozen"]]


def found(home: Home, *arguments: str, code: int = 1) -> dict[str, Any]:
    ran = home.run("verify", "--json", *arguments)
    assert (ran.code, ran.err) == (code, "")
    shape: dict[str, Any] = ran.json()
    assert [*shape] == ["clean", "jobs", "events", "findings", "total", "frozen", "still_frozen", "problem", "seconds"]
    assert shape["clean"] is (code == 0)
    return shape


def test_a_sound_store_is_clean(home: Home) -> None:
    some_jobs(home)
    assert re.fullmatch(r"clean: 3 jobs with 6 events in .*, [\d,]+ jobs/s\n", home.run("verify").out)
    shape = found(home, code=0)
    assert (shape["jobs"], shape["events"], shape["findings"], shape["total"]) == (3, 6, [], 0)


def test_an_empty_store_is_clean(home: Home) -> None:
    assert found(home, code=0)["jobs"] == 0


def test_a_row_that_drifted_is_named_frozen_and_mended(home: Home) -> None:
    first, *_ = some_jobs(home)
    drift(home)
    ran = home.run("verify")
    assert (ran.code, ran.err) == (1, "")
    title, line, _, total, advice = ran.out.splitlines()
    assert title.startswith("drifted: ")
    assert line == f"  row  {first}  failures is 7, and should be 0"
    assert total.startswith("1 finding, 1 job newly frozen: 3 jobs with 6 events in ")
    assert "leftfold rebuild" in advice
    assert frozen(home) == [first]
    (finding,) = found(home)["findings"]
    detail = "failures is 7, and should be 0"
    assert finding == {"what": "row", "job_id": first, "detail": detail, "mendable": True}

    mended = home.run("rebuild", first[:23], "--reason", "a test")
    assert mended == (0, f"  row  {first}  {detail}\nmended: 1 finding\n", "")
    assert found(home, code=0)["jobs"] == 3
    assert frozen(home) == []


def test_a_corrupt_log_is_named_and_stays_as_it_is(home: Home) -> None:
    first, *others = some_jobs(home)
    corrupt(home)
    shape = found(home)
    assert [(each["what"], each["job_id"], each["mendable"]) for each in shape["findings"]] == [("chain", first, False)]
    assert shape["frozen"] == [first]
    told = home.run("verify").out
    assert told.startswith("corrupt: ")
    assert f"\n  chain  {first}  event 2 is not the one that was sealed" in told
    assert "a log is never repaired" in told
    refused = home.run("rebuild", first, others[0], "--reason", "a test")
    assert (refused.code, refused.out) == (1, "nothing to mend\n")
    assert complaint(refused).startswith(f"leftfold: corrupt_log: the log of job {first} is not sound: ")
    shape = home.run("rebuild", first, "--reason", "a test", "--json").json()
    assert (shape["mended"], [each["job_id"] for each in shape["refused"]]) == ([], [first])
    assert frozen(home) == [first]
    assert home.run("rebuild", "--all", "--reason", "a test").code == 0
    assert frozen(home) == [first]


def test_one_job_by_the_beginning_of_its_id(home: Home) -> None:
    first, second, _ = some_jobs(home)
    corrupt(home)
    assert (found(home, "--job", second[:23], code=0)["jobs"], frozen(home)) == (1, [])
    assert [each["job_id"] for each in found(home, "--job", first.replace("-", ""))["findings"]] == [first]
    assert frozen(home) == [first]


def test_jobs_that_changed_since(home: Home) -> None:
    some_jobs(home)
    corrupt(home)
    assert found(home, "--since", "1h")["jobs"] == 3
    assert found(home, "--since", "2020-01-01T00:00:00Z")["jobs"] == 3
    assert found(home, "--since", "2999-01-01T00:00:00+01:00", code=0)["jobs"] == 0


def test_who_only_looks_freezes_nothing(home: Home) -> None:
    some_jobs(home)
    drift(home)
    before = home.trace()
    assert found(home, "--no-freeze")["frozen"] == []
    assert home.trace() == before


def test_counters_that_are_off_are_counted_anew(home: Home) -> None:
    some_jobs(home)
    home.sql("UPDATE {schema}.counts SET jobs = jobs + 5 WHERE state = 'succeeded'")
    (finding,) = found(home)["findings"]
    assert (finding["what"], finding["job_id"], finding["mendable"]) == ("counts", None, True)
    ran = home.run("rebuild", "--all", "--reason", "a test", "--json")
    assert (ran.code, ran.err, ran.json()) == (0, "", {"mended": [finding], "refused": []})
    found(home, code=0)


def test_a_rebuild_of_everything(home: Home) -> None:
    some_jobs(home)
    drift(home)
    found(home)
    ran = home.run("rebuild", "--all", "--reason", "a test")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "mended: 1 finding")
    assert ran.err == "`leftfold verify` tells whether anything is left\n"
    assert home.run("rebuild", "--all", "--reason", "a test").out == "nothing to mend\n"


def test_more_findings_than_are_told_are_counted(home: Home) -> None:
    with home.open() as engine:
        engine.enqueue_many(NewJob("work") for _ in range(1200))
    home.tamper("UPDATE {schema}.jobs SET failures = 1")
    shape = found(home, "--no-freeze")
    assert (len(shape["findings"]), shape["total"]) == (1000, 1200)
    assert "\n… and 200 more\n" in home.run("verify", "--no-freeze").out


def test_a_frozen_job_is_shown_as_such_and_refuses(home: Home) -> None:
    first, second, _ = some_jobs(home)
    home.tamper(f"UPDATE {{schema}}.jobs SET failures = 7 WHERE id = {spelled(home, second)}")  # noqa: S608
    found(home)
    assert re.search(rf"^{second}  queued +work +default +frozen ", home.run("jobs", "list").out, re.MULTILINE)
    assert home.run("jobs", "show", second, "--json").json()["frozen"] is True
    assert home.run("jobs", "show", first, "--json").json()["frozen"] is False
    assert (
        f"\nfrozen    nobody claims or changes it: `leftfold verify --job {second}` says why\n"
        in home.run("jobs", "show", second).out
    )
    with home.open() as engine:
        assert [claim.job_id for claim in engine.claim("worker-a", limit=5)] != [second]


def spelled(home: Home, job_id: str) -> str:
    return f"x'{job_id.replace('-', '')}'" if home.is_file else f"'{job_id}'"


def test_what_was_done_stands_on_record_with_who_and_why(home: Home) -> None:
    some_jobs(home)
    drift(home)
    home.run("verify", "--actor", "olga")
    home.run("rebuild", "--all", "--reason", "the disk was full")
    assert {"olga", "tester"} <= set(re.findall(r"olga|tester", str(home.trace())))
    assert "the disk was full" in str(home.trace())


@pytest.mark.parametrize("command", [["verify", "--job", NOWHERE], ["rebuild", NOWHERE, "--reason", "x"]])
@pytest.mark.parametrize("length", [36, 20])
def test_a_job_that_is_not_there_is_not_found(home: Home, command: list[str], length: int) -> None:
    before = home.trace()
    ran = home.run(*(NOWHERE[:length] if word == NOWHERE else word for word in command))
    assert (ran.code, ran.out) == (3, "")
    assert complaint(ran) == f"leftfold: job_not_found: there is no job {NOWHERE[:length]}"
    assert home.trace() == before


def test_a_bar_is_shown_on_a_terminal_and_taken_away(file_home: Home) -> None:
    with file_home.open() as engine:
        engine.enqueue_many(NewJob("work") for _ in range(600))
    shown = file_home.watched("verify", NO_COLOR="1").out
    assert "█" in shown
    assert " of 600 jobs, " in shown
    assert shown.rpartition("\r\x1b[2K")[2].startswith("clean: 600 jobs with 600 events in ")
    assert file_home.run("verify").err == ""
