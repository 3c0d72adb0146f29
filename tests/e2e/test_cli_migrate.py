"""`leftfold migrate`: it makes the tables once, and prints the very same as SQL."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from tests.e2e.command import around
from tests.e2e.homes import Home

from leftfold.store.sqlite.library import sqlite
from leftfold.testing.postgres import Server


def test_the_first_time_it_says_what_it_did_and_then_there_is_nothing_to_do(bare: Home) -> None:
    first, second = bare.run("migrate"), bare.run("migrate")
    assert first == (0, "applied 0001_begin\n", "")
    assert second == (0, "nothing to do: the schema is up to date\n", "")
    assert bare.run("jobs", "list", "--json") == (0, "", "")


def test_as_json(bare: Home) -> None:
    assert [bare.run("migrate", "--json").json() for _ in range(2)] == [
        {"store": bare.url, "applied": ["0001_begin"]},
        {"store": bare.url, "applied": []},
    ]


def test_two_at_once_wait_for_each_other(bare: Home) -> None:
    command = [sys.executable, "-m", "leftfold", "migrate", "--json"]
    started = [
        subprocess.Popen(command, env=around(bare.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    ended = [(*process.communicate(), process.returncode) for process in started]
    assert [(err, code) for _, err, code in ended] == [(b"", 0)] * 4
    assert sum(b"0001_begin" in out for out, _, _ in ended) == 1


def test_the_password_is_not_printed(server_home: Home) -> None:
    url = server_home.url.replace("leftfold@", "leftfold:hunter2@")
    said = server_home.run("migrate", "--json", "--store", url)
    assert said.json()["store"] == server_home.url.replace("leftfold@", "leftfold:***@")


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_sql_is_printed_without_a_store(dialect: str, file_home: Home) -> None:
    ran = file_home.run("migrate", "--dump-sql", "--dialect", dialect)
    assert (ran.code, ran.err) == (0, "")
    assert "BEGIN;" in ran.out
    assert ran.out.endswith("COMMIT;\n")
    assert file_home.trace() == {}


def test_the_sql_is_that_of_the_store_if_nobody_says(bare: Home) -> None:
    said = bare.run("migrate", "--dump-sql")
    assert said == bare.run("migrate", "--dump-sql", "--dialect", "sqlite" if bare.is_file else "postgres")
    assert (f'"{bare.schema}".jobs' in said.out) is not bare.is_file


def test_the_sql_needs_no_database_that_answers() -> None:
    home = Home("postgresql://ann:hunter2@127.0.0.1:1/jobs", "elsewhere", Path.cwd())
    ran = home.run("migrate", "--dump-sql")
    assert (ran.code, ran.err) == (0, "")
    assert 'CREATE TABLE "elsewhere".jobs' in ran.out
    assert "hunter2" not in ran.out


def in_python(home: Home, sql: str) -> None:
    connection = sqlite.connect(home.file)
    connection.executescript(sql)
    connection.close()


def by_shell(home: Home, sql: str) -> None:
    shell = shutil.which("sqlite3")
    if shell is None:
        pytest.skip("there is no sqlite3 shell")
    subprocess.run([shell, "-bail", home.file], input=sql.encode(), check=True, capture_output=True)


def by_psycopg(home: Home, sql: str) -> None:
    with psycopg.connect(home.url, autocommit=True) as connection:
        connection.execute(sql.encode())


def by_psql(home: Home, sql: str) -> None:
    shell = shutil.which("psql")
    if shell is None:
        pytest.skip("there is no psql")
    command = [shell, "-X", "-v", "ON_ERROR_STOP=1", "-q", home.url]
    subprocess.run(command, input=sql.encode(), check=True, capture_output=True)


@pytest.mark.parametrize("apply", [in_python, by_shell])
def test_a_file_made_by_hand_from_the_sql_is_a_store(apply: Callable[[Home, str], None], file_home: Home) -> None:
    apply(file_home, file_home.run("migrate", "--dump-sql").out)
    assert file_home.run("jobs", "list", "--json") == (0, "", "")
    assert file_home.run("migrate") == (0, "nothing to do: the schema is up to date\n", "")
    assert file_home.run("enqueue", "refund").code == 0
    assert file_home.run("doctor").code == 0


@pytest.mark.parametrize("apply", [by_psycopg, by_psql])
def test_a_schema_made_by_hand_from_the_sql_is_a_store(apply: Callable[[Home, str], None], server_home: Home) -> None:
    apply(server_home, server_home.run("migrate", "--dump-sql").out)
    assert server_home.run("migrate") == (0, "nothing to do: the schema is up to date\n", "")
    assert server_home.run("enqueue", "refund").code == 0


def test_what_is_made_by_hand_is_what_migrate_makes(
    tmp_path: Path, file_home: Home, server_home: Home, postgres: Server
) -> None:
    other_file = Home(f"sqlite:///{tmp_path / 'b' / 'jobs.db'}", "leftfold", tmp_path / "b")
    other_file.folder.mkdir()
    in_python(other_file, other_file.run("migrate", "--dump-sql").out)
    assert tables(file_home.migrated()) == tables(other_file)
    other_schema = Home(postgres.url(), server_home.schema + "_b", tmp_path)
    by_psycopg(other_schema, other_schema.run("migrate", "--dump-sql").out)
    made = columns(server_home.migrated())
    assert made == columns(other_schema)
    assert {table for table, *_ in made} >= {"jobs", "events", "migrations"}


def tables(home: Home) -> list[object]:
    connection = sqlite.connect(home.file)
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()
    found += connection.execute("SELECT version, name, checksum FROM leftfold_migrations").fetchall()
    connection.close()
    return list(found)


def columns(home: Home) -> list[tuple[str, ...]]:
    with psycopg.connect(home.url) as connection:
        return connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable, coalesce(column_default, '') "
            "FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2",
            (home.schema,),
        ).fetchall()
