"""Stores that cannot be opened: one line, a fitting exit code, no password, and nothing is changed."""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.e2e.command import Ran, around, complaint, run
from tests.e2e.homes import Home

import leftfold
from leftfold.cli.store import Place, check_place
from leftfold.core.errors import ValidationError
from leftfold.opening import address_of, masked
from leftfold.store.sqlite.library import sqlite
from leftfold.testing.postgres import Server

SECRET = "hunter2"
READING = [["jobs", "list"], ["queues", "list"], ["queues", "pause", "q"]]
WRITING = [["enqueue", "k"], ["migrate"]]


@pytest.mark.parametrize(
    "url",
    [
        "", " ", "jobs.db", "/var/lib/jobs.db", "sqlite:jobs.db", "sqlite://jobs.db", "sqlite:///", "sqlite:///folder/",
        "sqlite:///a%00b.db", "sqlite:///~nobody-of-this-name/jobs.db", "sqlite:///:memory:",
        f"mysql://ann:{SECRET}@host/jobs", f"host=127.0.0.1 password={SECRET}", f"ann:{SECRET}@host",
        f"postgresql:/ann:{SECRET}@host/jobs",
        f"postgresql://ann:{SECRET}@host:port/jobs",
        f"postgresql://ann:{SECRET}@host:99999/jobs",
        f"postgresql://ann:{SECRET}@[::1/jobs",
        f"postgresql://ann:{SECRET}@[::1]x/jobs",
        f"postgresql://ann:{SECRET}%zz@host/jobs",
        f"postgresql://ann:{SECRET}%00@host/jobs",
        f"postgresql://ann:{SECRET}%ff@host/jobs",
        f"postgresql://ann:x@{SECRET}@host/jobs",
        f"postgresql://ann:x/{SECRET}@host/jobs",
        f"postgresql://ann:1/{SECRET}@host/jobs",
        f"postgresql://ann:{SECRET}",
        f"postgresql://ann:x {SECRET}@host/jobs",
        f"postgresql://ann@host/jobs?password={SECRET}=1",
        f"postgresql://ann@host/jobs?password={SECRET}&nonsense=1",
        f"postgresql://ann:{SECRET}@host/jobs?nonsense=1",
        f"postgresql://ann:{SECRET}\udcff@host/jobs",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_and_its_password_not_shown(url: str, tmp_path: Path) -> None:
    for command in (["jobs", "list"], ["enqueue", "k"], ["migrate"], ["doctor"]):
        ran = run(*command, "--store", url, cwd=tmp_path)
        said = complaint(ran)
        assert (ran.code, ran.out) == (2, "")
        assert said.startswith("leftfold: validation_failed: ")
        assert SECRET not in said
    assert list(tmp_path.iterdir()) == []


SPICE = st.text(st.sampled_from("aZ09@/?#:%=&[],' \\$+;\t"), max_size=8)


@settings(max_examples=1000)
@given(SPICE, SPICE, st.sampled_from(["", "?sslmode=require", "?password={}", "?a=b&password={}&c=d"]))
@example("", "@", "?password={}")
@example("", "&a=", "?password={}")
@example("&", "=", "?password={}")
def test_no_part_of_a_password_is_ever_shown(before: str, behind: str, query: str) -> None:
    password = f"Hun{before}Ter{behind}Two"
    url = f"postgresql://ann:{password}@host:5432/jobs{query.format(password)}"
    shown = masked(url)
    try:
        check_place(Place(url, "leftfold"), create=False)
    except ValidationError as problem:
        shown += str(problem)
    else:  # what we let through, libpq can read
        assert psycopg.conninfo.conninfo_to_dict(url)["host"] == "host"
    for part in ("Hun", "Ter", "Two"):
        assert part not in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("postgresql://host/jobs", "postgresql://host/jobs"),
        ("postgresql://ann@host:5432/jobs", "postgresql://ann@host:5432/jobs"),
        ("postgresql://ann:hunter2@host/jobs", "postgresql://ann:***@host/jobs"),
        ("postgresql://ann:p%40:#?x@[::1]:5432/jobs", "postgresql://ann:***@[::1]:5432/jobs"),
        ("postgres://ann:x@one:1,two:2/jobs?sslmode=require", "postgres://ann:***@one:1,two:2/jobs?sslmode=require"),
        ("postgresql:///jobs?host=/run/x&password=x", "postgresql:///jobs?host=/run/x&***"),
        ("postgresql:///jobs?sslpassword=x&host=h", "postgresql:///jobs?***&host=h"),
        ("postgresql:///jobs?options=-cx%3Dy&user=u", "postgresql:///jobs?***&user=u"),
    ],
)
def test_a_good_url_is_read_and_shown_without_its_password(url: str, shown: str) -> None:
    assert address_of(url).dialect == ("postgres" if url.startswith("postgres") else "sqlite")
    assert masked(url) == shown


def test_a_copy_that_is_not_in_wal_mode_yet_is_a_store_all_the_same(tmp_path: Path) -> None:
    with leftfold.open(f"sqlite:///{tmp_path}/jobs.db") as engine:
        job = engine.enqueue("work")
        connection = sqlite.connect(tmp_path / "jobs.db")
        connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
        connection.close()
    ran = run("jobs", "list", "--json", "--store", f"sqlite:///{tmp_path}/copy.db")
    assert (ran.code, job.job_id in ran.out) == (0, True), ran


def test_an_unreachable_database_is_temporary_and_said_at_once() -> None:
    url = f"postgresql://ann:{SECRET}@127.0.0.1:1/jobs"
    for command in (*READING, *WRITING):
        began = time.monotonic()
        ran = run(*command, "--store", url)
        assert time.monotonic() - began < 5
        assert (ran.code, ran.out) == (75, "")
        assert complaint(ran).startswith("leftfold: store_unavailable: ")
        assert SECRET not in ran.err


def test_a_host_that_nobody_knows_is_said_in_one_line() -> None:
    ran = run("jobs", "list", "--store", f"postgresql://ann:{SECRET}@no-such-host.invalid/jobs")
    assert (ran.code, ran.out) == (75, "")
    assert complaint(ran).startswith("leftfold: store_unavailable: ")
    assert SECRET not in ran.err


@pytest.fixture(scope="module")
def guarded(postgres: Server) -> str:
    """Make a user that needs a password, and give where it connects."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guarded")
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'the right one'")
        ((file,),) = connection.execute("SHOW hba_file").fetchall()
        rules = Path(file).read_text(encoding="utf-8")
        Path(file).write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules}", encoding="utf-8")
        connection.execute("SELECT pg_reload_conf()")
    return f"127.0.0.1:{postgres.port}/postgres"


@pytest.mark.parametrize("password", [f":{SECRET}", ""], ids=["wrong", "none"])
@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
def test_a_wrong_password_is_denied_and_not_shown(guarded: str, password: str, command: list[str]) -> None:
    ran = run(*command, "--store", f"postgresql://guarded{password}@{guarded}")
    assert (ran.code, ran.out) == (6, "")
    assert complaint(ran).startswith("leftfold: store_denied: ")
    assert SECRET not in ran.err


def test_the_right_password_is_let_in_and_a_user_without_rights_is_not(guarded: str) -> None:
    ran = run("migrate", "--store", f"postgresql://guarded:the%20right%20one@{guarded}")
    assert ran.code == 6
    assert "permission denied" in complaint(ran)


def plant(folder: Path, what: str) -> Path:
    """Put something where a store should be."""
    place = folder / "jobs.db"
    match what:
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case "text":
            place.write_text("Dear diary, " * 500, encoding="utf-8")
        case "short text":
            place.write_text("Dear", encoding="utf-8")
        case "empty":
            place.write_bytes(b"")
        case "half":
            foreign(place, "CREATE TABLE diary (day TEXT); PRAGMA journal_mode = WAL")
            place.write_bytes(place.read_bytes()[:5000])
        case "somebody's":
            foreign(place, "CREATE TABLE diary (day TEXT)")
        case "somebody's, with migrations":
            foreign(place, "CREATE TABLE leftfold_migrations (name TEXT)")
    return place


def foreign(place: Path, script: str) -> None:
    with closing(sqlite.connect(place)) as connection:
        connection.executescript(script)


@pytest.mark.parametrize("command", READING, ids=" ".join)
@pytest.mark.parametrize("what", ["folder", "pipe", "text", "short text", "empty", "half", "somebody's"])
def test_what_is_no_store_is_not_touched_by_who_reads(what: str, command: list[str], file_home: Home) -> None:
    plant(file_home.folder, what)
    before = file_home.trace()
    ran = file_home.run(*command)
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).startswith(("leftfold: store: ", "leftfold: store_not_ready: "))
    assert file_home.trace() == before


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
@pytest.mark.parametrize("what", ["folder", "pipe", "text", "short text"])
def test_what_can_be_no_store_is_not_touched_by_who_writes(what: str, command: list[str], file_home: Home) -> None:
    plant(file_home.folder, what)
    before = file_home.trace()
    ran = file_home.run(*command)
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).startswith("leftfold: store: ")
    assert file_home.trace() == before


@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
def test_tables_of_somebody_else_that_are_called_like_ours_are_said_in_one_line(
    command: list[str], file_home: Home
) -> None:
    plant(file_home.folder, "somebody's, with migrations")
    ran = file_home.run(*command)
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).startswith("leftfold: store")


@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
def test_a_store_of_a_later_version_is_left_alone(command: list[str], home: Home) -> None:
    now = "0" if home.is_file else "now()"
    home.sql(f"INSERT INTO {{schema}}.migrations VALUES (99, 'later', 'x', {now})")  # noqa: S608
    before = home.trace()
    ran = home.run(*command)
    assert (ran.code, ran.out) == (1, "")
    assert "upgrade leftfold" in complaint(ran)
    assert home.trace() == before


@pytest.fixture
def read_only(file_home: Home) -> Iterator[Home]:
    """Give a folder that nothing can be written into."""
    file_home.folder.chmod(0o500)
    yield file_home
    file_home.folder.chmod(0o700)


def unprivileged() -> None:
    """Give up root's right to write wherever it likes, for the program that is started next."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert libc.prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP


def run_unprivileged(home: Home, *arguments: str) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "leftfold", *arguments], env=around(home.env), capture_output=True, check=False,
        preexec_fn=unprivileged,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(("command", "code"), [(["enqueue", "k"], 6), (["migrate"], 6), (["jobs", "list"], 1)])
def test_in_a_read_only_folder_nothing_is_made(read_only: Home, command: list[str], code: int) -> None:
    ran = run_unprivileged(read_only, *command)
    assert (ran.code, ran.out) == (code, "")
    complaint(ran)
    assert read_only.trace() == {}


@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
def test_a_store_in_a_read_only_folder_is_denied(file_home: Home, command: list[str]) -> None:
    file_home.migrated()
    before = file_home.trace()
    file_home.folder.chmod(0o500)
    ran = run_unprivileged(file_home, *command)
    file_home.folder.chmod(0o700)
    assert (ran.code, ran.out) == (6, "")
    assert complaint(ran).startswith("leftfold: store_denied: ")
    assert file_home.trace() == before


@pytest.mark.parametrize("mode", [0o400, 0o000])
def test_a_file_that_is_not_ours_is_denied(file_home: Home, mode: int) -> None:
    file_home.migrated().file.chmod(mode)
    for command in (*READING, *WRITING):
        ran = run_unprivileged(file_home, *command)
        assert (ran.code, ran.out) == (6, "")
        assert complaint(ran).startswith("leftfold: store_denied: ")


def test_a_folder_that_is_not_ours_is_denied(file_home: Home) -> None:
    file_home.migrated().folder.chmod(0o000)
    ran = [run_unprivileged(file_home, *command) for command in (*READING, *WRITING)]
    file_home.folder.chmod(0o700)
    assert [(each.code, each.out) for each in ran] == [(6, "")] * len(ran)
    assert complaint(ran[0]).startswith("leftfold: store_denied: ")


def test_a_name_that_is_too_long_is_said_in_one_line(tmp_path: Path) -> None:
    for command in (*READING, *WRITING):
        ran = run(*command, "--store", f"sqlite:///{tmp_path}/{'x' * 300}.db")
        assert (ran.code, ran.out) == (1, "")
        assert "File name too long" in complaint(ran)


def test_a_name_that_is_not_utf8_is_a_name_like_any_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/\udcff.db"
    assert run("enqueue", "k", "--store", url).code == 0
    assert len(run("jobs", "list", "--json", "--store", url).lines()) == 1
    assert [os.fsencode(file.name) for file in tmp_path.iterdir()] == [b"\xff.db"]


def test_the_file_in_the_working_directory_is_the_store_if_nobody_says(tmp_path: Path) -> None:
    assert run("enqueue", "k", cwd=tmp_path).code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["leftfold.db"]
    assert len(run("jobs", "list", "--json", cwd=tmp_path).lines()) == 1


def test_a_flag_goes_before_the_environment(both: tuple[Home, Home]) -> None:
    ours, other = (home.migrated() for home in both)
    assert ours.run("enqueue", "k", "--store", other.url, "--schema", other.schema).code == 0
    assert ours.run("jobs", "list", "--json").out == ""
    assert len(other.run("jobs", "list", "--json").lines()) == 1
