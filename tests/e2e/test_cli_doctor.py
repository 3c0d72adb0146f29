"""`leftfold doctor`: healthy stores pass, and each ailment is found, named, and answered with what to do."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.e2e.command import Ran, complaint, run
from tests.e2e.homes import Home

from leftfold.cli import checks, examine_postgres
from leftfold.cli.checks import Verdict
from leftfold.core.limits import SECOND
from leftfold.store.sqlite.library import OLDEST, can_lose_commits
from leftfold.testing.postgres import Server, running

OF_FILES = [
    "library", "file", "wal_reset", "journal", "synchronous", "schema", "maintenance", "frozen", "clock", "index",
    "counters",
]  # fmt: skip
OF_SERVERS = [
    "library", "server", "encoding", "recovery", "fsync", "page_writes", "commit", "isolation", "writable", "schema",
    "logged", "frozen", "restored", "clock", "index", "counters",
]  # fmt: skip


def verdicts(ran: Ran) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in ran.json()["checks"]}


def finding(home: Home, name: str, code: int, *arguments: str) -> dict[str, Any]:
    """Give what was found, and hold the two forms to each other on the way."""
    ran, told = home.run("doctor", "--json", *arguments), home.run("doctor", *arguments)
    assert (ran.code, ran.err) == (told.code, told.err) == (code, "")
    assert ran.json()["healthy"] is (code == 0)
    found: dict[str, Any] = next(check for check in ran.json()["checks"] if check["name"] == name)
    assert [*found] == ["name", "verdict", "found", "advice"]
    assert (found["verdict"] == "ok") is (not found["advice"])
    assert re.search(rf"^  {found['verdict']:4}  {name} ", told.out, re.MULTILINE)
    return found


def test_a_file_in_good_health(file_home: Home) -> None:
    file_home.run("enqueue", "refund")
    before = file_home.trace()
    ran = file_home.run("doctor", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert {name: ran.json()[name] for name in ("store", "dialect", "healthy")} == {
        "store": file_home.url, "dialect": "sqlite", "healthy": True,
    }  # fmt: skip
    assert verdicts(ran) == dict.fromkeys(OF_FILES, "ok") | {"wal_reset": verdicts(ran)["wal_reset"]}
    told = file_home.run("doctor")
    assert (told.code, told.out.splitlines()[0]) == (0, file_home.url)
    assert told.out.splitlines()[-1].startswith("healthy")
    assert file_home.trace() == before


def test_a_server_in_good_health(durable_home: Home) -> None:
    durable_home.run("enqueue", "refund")
    before = durable_home.trace()
    ran = durable_home.run("doctor", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json()["dialect"], ran.json()["healthy"]) == ("postgres", True)
    assert verdicts(ran) == dict.fromkeys(OF_SERVERS, "ok")
    assert durable_home.run("doctor").out.splitlines()[-1] == "healthy"
    assert durable_home.trace() == before


def test_where_there_is_no_file_none_is_made(file_home: Home) -> None:
    assert finding(file_home, "file", 5)["found"].startswith("there is no store at ")
    assert file_home.trace() == {}


def test_a_file_that_is_no_database(file_home: Home) -> None:
    file_home.file.write_text("Dear diary, " * 100, encoding="utf-8")
    before = file_home.trace()
    assert finding(file_home, "file", 5)["found"].endswith(
        "file is not a database: name a store, or a file that is not there yet"
    )
    assert file_home.trace() == before


def test_a_schema_without_tables(server_home: Home) -> None:
    found = finding(server_home, "schema", 5)
    assert (found["verdict"], found["advice"]) == ("bad", "run `leftfold migrate`")
    assert server_home.trace() == {}


def test_a_schema_of_a_later_version(home: Home) -> None:
    home.sql("UPDATE {schema}.migrations SET version = 99")
    assert "upgrade leftfold" in finding(home, "schema", 5)["found"]


@pytest.mark.skipif(not can_lose_commits(sqlite3.sqlite_version_info), reason="Python's SQLite has no such bug")
@pytest.mark.skipif(sqlite3.sqlite_version_info < OLDEST, reason="Python's SQLite is too old")
def test_a_library_that_can_lose_commits_is_a_warning_while_the_guard_is_on(file_home: Home) -> None:
    file_home.migrated()
    ran = run("doctor", "--json", env={**file_home.env, "LEFTFOLD_SQLITE": "stdlib"}, fresh=True)
    assert ran.code == 0
    found = {check["name"]: check for check in ran.json()["checks"]}
    assert found["library"]["found"] == f"sqlite3 with SQLite {sqlite3.sqlite_version}"
    assert found["wal_reset"]["verdict"] == "warn"
    assert "the checkpoint guard is on" in found["wal_reset"]["found"]
    assert "leftfold[sqlite]" in found["wal_reset"]["advice"]


def test_a_log_that_was_left_open_to_changes(file_home: Home) -> None:
    file_home.migrated().sql("INSERT INTO leftfold_maintenance VALUES (7, 0, 'olga', 'mend', 1)")
    found = finding(file_home, "maintenance", 5)
    assert found["found"] == "olga left the log open to changes at 1970-01-01 00:00:00.000Z: mend"
    assert found["advice"].endswith("UPDATE leftfold_maintenance SET open = 0 WHERE id = 7")
    file_home.sql(found["advice"].partition(": ")[2])
    assert finding(file_home, "maintenance", 0)["verdict"] == "ok"


def test_jobs_that_are_frozen(home: Home) -> None:
    ids = [home.run("enqueue", "refund").out.strip() for _ in range(2)]
    home.tamper("UPDATE {schema}.jobs SET failures = 7")
    home.run("verify")
    found = next(check for check in home.run("doctor", "--json").json()["checks"] if check["name"] == "frozen")
    assert (found["verdict"], found["found"]) == ("warn", f"nobody claims or changes {ids[0]}, and 1 more")
    assert f"`leftfold verify --job {ids[0]}`" in found["advice"]


def test_a_clock_that_was_set_back(file_home: Home) -> None:
    with file_home.open(clock=lambda: 4_000_000_000 * SECOND) as engine:
        engine.enqueue("refund")
    found = finding(file_home, "clock", 0)
    assert found["verdict"] == "warn"
    assert "in the future" in found["found"]


@pytest.mark.parametrize(("seconds", "verdict"), [(1, "ok"), (10, "warn"), (-10, "warn")])
def test_a_store_whose_clock_is_off(durable_home: Home, seconds: int, verdict: str) -> None:
    off = "(extract(epoch FROM clock_timestamp()) + {seconds}) * 1000000".replace("{seconds}", str(seconds))
    made = "CREATE OR REPLACE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS"
    durable_home.sql(f"{made} $$ SELECT ({off})::bigint $$")
    found = finding(durable_home, "clock", 0)
    assert found["verdict"] == verdict
    if verdict == "warn":
        assert re.search(r"(10|9\.\d)s (ahead of|behind) this machine's", found["found"])


def test_the_time_it_takes_to_ask_is_no_difference() -> None:
    assert checks.skew(10 * SECOND, 5 * SECOND, slack=4 * SECOND).verdict is Verdict.OK
    assert checks.skew(10 * SECOND, 5 * SECOND, slack=2 * SECOND).verdict is Verdict.WARN


def test_an_index_that_is_gone(home: Home) -> None:
    home.sql("DROP INDEX {schema}.jobs_claimable")
    assert finding(home, "index", 5)["verdict"] == "bad"


def test_an_index_of_the_same_name_that_does_not_help(home: Home) -> None:
    name = "leftfold_jobs_claimable" if home.is_file else "jobs_claimable"
    home.sql(f"DROP INDEX {{schema}}.jobs_claimable; CREATE INDEX {name} ON {{schema}}.jobs (created_at)")
    assert finding(home, "index", 5)["verdict"] == "bad"


def test_a_server_that_forgets(server_home: Home) -> None:
    server_home.migrated()  # the server of the tests does not wait for its disk
    found = verdicts(server_home.run("doctor", "--json"))
    assert (found["fsync"], found["page_writes"], found["commit"]) == ("bad", "warn", "bad")
    assert "crash" in finding(server_home, "fsync", 5)["advice"]
    assert server_home.run("doctor").out.splitlines()[-1] == "unhealthy: 2 of 16 checks are bad"


@pytest.mark.parametrize(
    ("setting", "value", "name", "code"),
    [
        ("synchronous_commit", "off", "commit", 5),
        ("default_transaction_isolation", "serializable", "isolation", 0),
        ("default_transaction_read_only", "on", "writable", 5),
    ],
)
def test_settings_of_a_user(durable_home: Home, setting: str, value: str, name: str, code: int) -> None:
    url = f"{durable_home.url}?options=-c%20{setting}%3D{value}"
    found = finding(durable_home, name, code, "--store", url)
    assert (found["verdict"], found["found"]) == ("bad" if code else "warn", f"{setting} is {value}")


def test_tables_that_a_crash_would_empty(durable_home: Home) -> None:
    durable_home.sql("ALTER TABLE {schema}.queues SET UNLOGGED")
    assert finding(durable_home, "logged", 5)["found"] == "unlogged tables: queues"


def test_counters_that_nobody_folds(durable_home: Home) -> None:
    durable_home.sql("INSERT INTO {schema}.counts SELECT 'q', 'k', 'queued', 0 FROM generate_series(1, 50002)")
    found = finding(durable_home, "counters", 0)
    assert (found["verdict"], found["found"]) == ("warn", "50001 of 50002 rows to be folded")


def test_a_database_in_another_encoding(durable: Server, durable_home: Home) -> None:
    with psycopg.connect(durable.url(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS latin")
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    found = finding(durable_home, "encoding", 5, "--store", durable.url("latin"))
    assert found["found"] == "the database is in LATIN1"


@pytest.mark.parametrize(("version", "verdict"), [(130_022, "bad"), (140_000, "ok"), (180_001, "ok")])
def test_a_server_is_judged_by_its_version(version: int, verdict: str) -> None:
    assert examine_postgres.server(version).verdict == verdict


def test_a_server_that_cannot_be_reached(server_home: Home) -> None:
    found = finding(server_home, "connection", 5, "--store", "postgresql://ann:hunter2@127.0.0.1:1/jobs")
    assert "Connection refused" in found["found"]


def test_a_standby(tmp_path: Path) -> None:
    with running(durable=True) as server:
        home = Home(server.url(), "leftfold", tmp_path).migrated()
        home.run("enqueue", "refund")
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        assert finding(home, "recovery", 5)["advice"] == "connect to the primary"
        assert len(home.run("jobs", "list", "--json").lines()) == 1
        refused = home.run("enqueue", "refund")
        assert (refused.code, refused.out) == (75, "")
        assert "connect to the primary" in complaint(refused)


def test_the_password_is_not_shown(durable_home: Home) -> None:
    url = durable_home.url.replace("leftfold@", "leftfold:hunter2@")
    for form in ([], ["--json"]):
        ran = durable_home.run("doctor", *form, "--store", url)
        assert ran.code == 0
        assert "leftfold:***@" in ran.out
        assert "hunter2" not in ran.out
    gone = durable_home.run("doctor", "--store", "postgresql://ann:hunter2@127.0.0.1:1/jobs")
    assert "hunter2" not in gone.out + gone.err


def test_a_terminal_gets_colours(file_home: Home) -> None:
    file_home.migrated()
    assert "\x1b[32mok" in file_home.watched("doctor").out
    assert "\x1b" not in file_home.watched("doctor", NO_COLOR="1").out
