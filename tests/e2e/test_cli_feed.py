"""`leftfold feed`: every event reaches every consumer, and who stops goes on where it stopped."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
from tests.e2e.command import around, interruptible
from tests.e2e.homes import Home

from leftfold import NewJob


def some_events(home: Home, jobs: int = 3) -> list[str]:
    with home.open() as engine:
        ids = [receipt.job_id for receipt in engine.enqueue_many(NewJob("work") for _ in range(jobs)) if receipt]
        (claim,) = engine.claim("worker-a", limit=1)
        engine.start(claim)
        engine.complete(claim, "done")
    return ids


def test_a_consumer_gets_every_event_once_it_was_written(home: Home) -> None:
    some_events(home)
    first = home.run("feed", "read", "archive", "--json")
    assert (first.code, first.err) == (0, "")
    assert [*first.lines()[0]] == [
        "job_id", "version", "at", "event", "who", "actor", "request_id", "format", "data",
    ]  # fmt: skip
    assert [record["event"] for record in first.lines()] == [*["enqueued"] * 3, "claimed", "started", "succeeded"]
    assert home.run("feed", "read", "archive", "--json") == (0, "", "")
    job_id = home.run("enqueue", "later").out.strip()
    assert [record["job_id"] for record in home.run("feed", "read", "archive", "--json").lines()] == [job_id]
    assert len(home.run("feed", "read", "another", "--json").lines()) == 7


def test_so_many_at_a_time(home: Home) -> None:
    some_events(home, 1100)
    read = [home.run("feed", "read", "archive", "--json", "--limit", str(limit)).lines() for limit in (2, 700, 9999)]
    assert [len(lines) for lines in read] == [2, 700, 401]
    whole = home.run("feed", "read", "another", "--json").lines()
    assert {(line["job_id"], line["version"]) for lines in read for line in lines} == {
        (line["job_id"], line["version"]) for line in whole
    }
    assert len(whole) == 1103


def test_a_damaged_event_is_told_of_once_and_passed(home: Home) -> None:
    first, *_ = some_events(home)
    home.tamper("UPDATE {schema}.events SET data = '{' WHERE version = 2")
    read = home.run("feed", "read", "archive", "--json")
    assert (read.code, len(read.lines())) == (0, 5)
    assert read.err.startswith(f"Warning: job {first}: event 2: ")
    assert read.err.count("\n") == 1
    assert home.run("feed", "read", "archive", "--json") == (0, "", "")


def test_from_now_on(home: Home) -> None:
    some_events(home)
    assert home.run("feed", "read", "pager", "--start", "now") == (0, "", "")
    job_id = home.run("enqueue", "later").out.strip()
    (line,) = home.run("feed", "read", "pager", "--start", "now").out.splitlines()
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}Z  {job_id}    1  enqueued       client tester  later in default",
        line,
    )


def test_consumers_are_listed_and_forgotten(home: Home) -> None:
    assert home.run("feed", "list") == (0, "", "no consumers\n")
    assert home.run("feed", "list", "--json") == (0, "", "")
    some_events(home)
    home.run("feed", "read", "archive")
    home.run("feed", "read", "pager", "--limit", "2")
    archive, pager = home.run("feed", "list", "--json").lines()
    assert [*archive] == ["name", "started_at", "moved_at", "behind", "oldest_at"]
    assert (archive["name"], archive["behind"], archive["oldest_at"]) == ("archive", 0, None)
    assert (pager["name"], pager["behind"]) == ("pager", 4)
    assert pager["oldest_at"] > 1_700_000_000_000_000
    head, *rows = home.run("feed", "list").out.splitlines()
    assert head.split() == ["consumer", "behind", "oldest", "moved"]
    assert [row.split()[:2] for row in rows] == [["archive", "0"], ["pager", "4"]]
    assert home.run("feed", "forget", "archive") == (0, "archive is forgotten\n", "")
    assert home.run("feed", "forget", "archive") == (0, "archive was not known\n", "")
    assert home.run("feed", "forget", "pager", "--json").json() == {"name": "pager", "forgotten": True}
    assert len(home.run("feed", "read", "archive", "--json").lines()) == 6


def test_who_follows_gets_what_comes_until_interrupted(home: Home) -> None:
    some_events(home)
    command = [sys.executable, "-m", "leftfold", "feed", "read", "pager", "--follow", "--json"]
    with (
        interruptible(),
        subprocess.Popen(command, env=around(home.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        read = [process.stdout.readline() for _ in range(6)]
        home.run("enqueue", "later")
        read.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert all(read)
    assert b'"later"' in read[-1]


def test_what_could_not_be_written_comes_again(home: Home) -> None:
    some_events(home)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "leftfold", "feed", "read", "archive", "--json"],
            env=around(home.env), stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"leftfold: os: No space left on device\n")
    assert len(home.run("feed", "read", "archive", "--json").lines()) == 6


def test_two_who_read_for_one_consumer_are_in_conflict(home: Home) -> None:
    with home.open() as engine:  # a page that no pipe holds: who writes it waits in the middle
        engine.enqueue_many(NewJob("work", "x" * 1000) for _ in range(300))
    command = [sys.executable, "-m", "leftfold", "feed", "read", "archive", "--json"]
    with subprocess.Popen(command, env=around(home.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert home.run("feed", "read", "archive", "--json").code == 0
        _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert err.startswith(b"leftfold: feed_conflict: ")
    assert err.count(b"\n") == 1


def test_a_stretch_whose_events_are_gone_is_passed(file_home: Home) -> None:
    some_events(file_home, 5)
    file_home.tamper("DELETE FROM leftfold_events WHERE seq BETWEEN 2 AND 4")
    with file_home.open() as engine:
        assert len([*engine.follow("follower", limit=1)]) == 5
    read = [file_home.run("feed", "read", "archive", "--json", "--limit", "1").out for _ in range(6)]
    assert [bool(out) for out in read] == [True] * 5 + [False]


def test_events_that_were_restored_from_another_server(server_home: Home) -> None:
    server_home.migrated()
    some_events(server_home)

    def restored() -> dict[str, str]:
        checks = server_home.run("doctor", "--json").json()["checks"]
        found: dict[str, str] = next(check for check in checks if check["name"] == "restored")
        return found

    assert restored()["verdict"] == "ok"
    server_home.tamper("UPDATE {schema}.events SET xid = xid + 4000000000")
    assert restored()["verdict"] == "warn"
    assert server_home.run("feed", "read", "archive", "--json").out == ""
    server_home.run("feed", "forget", "archive")
    with psycopg.connect(server_home.url, autocommit=True) as connection:
        connection.execute(restored()["advice"].partition(": ")[2].encode())
    assert restored()["verdict"] == "ok"
    assert len(server_home.run("feed", "read", "archive", "--json").lines()) == 6
    assert server_home.run("verify").code == 0
