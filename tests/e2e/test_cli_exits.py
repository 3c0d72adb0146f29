"""How the command ends: one code per class of error, one line per problem, and nothing else on standard error."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.command import around, complaint, interruptible, run, start
from tests.e2e.homes import Home

from leftfold import NewJob
from leftfold.cli import VERBS, cli
from leftfold.cli.exits import EXITS, exit_code
from leftfold.core import errors
from leftfold.core.errors import LeftfoldError

CODES = {
    "LeftfoldError": 1, "DesignError": 1, "JobError": 1, "ValidationError": 2, "LimitExceededError": 2,
    "TransientError": 1, "Retry": 1, "PermanentError": 1, "OutcomeError": 1, "JobFailed": 1, "JobCancelled": 1,
    "ResultTimeoutError": 1, "NoCurrentJobError": 1, "RefusedError": 4, "JobNotFoundError": 3, "JobExistsError": 4,
    "KeyTakenError": 4, "JobFrozenError": 4, "QueuePausedError": 4, "FeedConflictError": 4,
    "IllegalTransitionError": 4, "JobEndedError": 4, "NotPermittedError": 4,
    "DialectRefusedError": 4, "NotDueError": 4, "LeaseConflictError": 4, "RevisionConflictError": 4,
    "RequestReusedError": 4, "SignalConflictError": 4, "CorruptLogError": 1, "BrokenChainError": 1, "StoreError": 1,
    "StoreUnavailableError": 75, "StoreDeniedError": 6, "StoreNotReadyError": 1, "OutcomeUnknownError": 75,
    "MissingExtraError": 1, "WaitExpired": 1,
}  # fmt: skip


def tree(kind: type[LeftfoldError]) -> list[type[LeftfoldError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in tree(child))]


def test_every_error_there_is_has_an_exit_code() -> None:
    ours = [error for error in tree(LeftfoldError) if error.__module__ == errors.__name__]
    assert {error.__name__: exit_code(error) for error in ours} == CODES


def test_an_error_that_is_added_has_the_code_of_its_parent() -> None:
    class NewError(errors.KeyTakenError):
        code = "new"

    assert exit_code(NewError) == EXITS[errors.RefusedError]


def test_every_verb_loads_the_command_of_its_name() -> None:
    assert {name: verb.load().name for name, verb in VERBS.items()} == {name: name for name in VERBS}
    assert [*cli.commands] == [*VERBS]


def test_the_codes_stand_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for code in {0, 5, 130, *CODES.values()}:
        assert f"\n| {code} | " in page, code


def loaded_by(*arguments: str, home: Home | None = None) -> str:
    ran = start(["-X", "importtime", "-m", "leftfold", *arguments], env=home.env if home else None)
    assert ran.code == 0
    return ran.err


def test_help_loads_no_store_and_no_proof() -> None:
    loaded = loaded_by("--help")
    assert "leftfold.cli" in loaded
    for module in ("psycopg", "sqlite3", "leftfold.store.sqlite", "leftfold.store.postgres", "leftfold.proof"):
        assert module not in loaded, module


def test_a_command_on_a_file_loads_nothing_of_postgresql(file_home: Home) -> None:
    file_home.migrated()
    loaded = loaded_by("jobs", "list", "--json", home=file_home)
    assert "leftfold.store.sqlite.driver" in loaded
    assert "psycopg" not in loaded
    assert "leftfold.proof" not in loaded


def many(home: Home, count: int = 3000) -> Home:
    with home.migrated().open() as engine:
        engine.enqueue_many(NewJob("bulk", {"number": number}) for number in range(count))
    return home


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_who_reads_only_the_beginning_hears_nothing_about_it(file_home: Home, form: list[str]) -> None:
    many(file_home)
    command = [sys.executable, "-m", "leftfold", "jobs", "list", "--all", *form]
    with subprocess.Popen(
        command, env=around(file_home.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_full_disk_is_said_in_one_line(file_home: Home) -> None:
    file_home.migrated()
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "leftfold", "enqueue", "refund"],
            env=around(file_home.env), stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"leftfold: os: No space left on device\n")


def test_an_interrupt_ends_it_without_a_word(file_home: Home) -> None:
    command = [sys.executable, "-m", "leftfold", "enqueue", "refund", "-"]
    pipe = subprocess.PIPE
    with (
        interruptible(),
        subprocess.Popen(command, env=around(file_home.env), stdin=pipe, stdout=pipe, stderr=pipe) as process,
    ):
        wait_until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert not file_home.file.exists()


def wait_until_it_reads(pid: int) -> None:
    """Wait until the process hangs in a read of its standard input."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        call = Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()
        if call[:2] == ["0", "0x0"]:
            return
        os.sched_yield()
    raise AssertionError("it never read its standard input")


def test_a_missing_extra_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for command in (["jobs", "list"], ["doctor"], ["migrate"], ["enqueue", "x"]):
        ran = run(*command, "--store", "postgresql://127.0.0.1:1/x", env={"PYTHONPATH": path}, fresh=True)
        assert ran.code == 1
        assert complaint(ran) == "leftfold: missing_extra: PostgreSQL needs psycopg: pip install 'leftfold[postgres]'"


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False), ({}, False)],
    ids=["FORCE_COLOR", "NO_COLOR above all", "neither"],
)
def test_colours_are_as_the_environment_says(file_home: Home, env: dict[str, str], *, coloured: bool) -> None:
    file_home.run("enqueue", "refund")
    env = {**file_home.env, **env}
    for command in (["jobs", "list"], ["doctor"], ["jobs", "show", "zz"]):
        ran = run(*command, env=env)
        assert ("\x1b[" in ran.out + ran.err) is coloured, command
