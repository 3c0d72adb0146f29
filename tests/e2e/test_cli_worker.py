"""`leftfold worker`: which apps it takes, what it runs, and how it ends. `leftfold workers`: who runs."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually
from tests.e2e.command import Ran, around, complaint
from tests.e2e.homes import Home

APP = """
import logging, os, time
from pathlib import Path
from leftfold import App

app = App(schema=os.environ["LEFTFOLD_SCHEMA"])
other = app

@app.job
def double(number: int) -> int:
    logging.getLogger("mine").info("doubling", extra={"number": number})
    return 2 * number

@app.job(queue="slow")
async def slowly(number: int) -> int:
    return number

@app.job(max_failures=2, retry_delay=0.01)
def fail() -> None:
    raise ValueError("never")

@app.job
def hold() -> None:
    Path("holding").touch()
    while Path("holding").exists():
        time.sleep(0.01)
"""
MODULES = {
    "jobs": APP,
    "empty": "from leftfold import App\napp = App()\n",
    "elsewhere": "from leftfold import App\ntasks = App()\nnothing = 3\n",
    "broken": "x = 1\ny = x / 0\n",
    "lacking": "import no_such_module\n",
    "wrong": "def (\n",
    "ending": "import sys\nsys.exit('no settings')\n",
    "misplaced": "from leftfold import App\n\napp = App('mysql://me:secret@host/db')\n",
    "starred": "from leftfold import App\napp = App()\n@app.job\ndef f(*numbers: int) -> None: ...\n",
    "memory": "from leftfold import App\napp = App('sqlite:///:memory:')\n@app.job\ndef f() -> None: ...\n",
}


@pytest.fixture
def shop(home: Home) -> Home:
    """Give a store in a folder with some apps, good ones and bad ones."""
    return with_modules(home)


def with_modules(home: Home) -> Home:
    for name, text in MODULES.items():
        (home.folder / f"{name}.py").write_text(text, encoding="utf-8")
    return home


def work(home: Home, *options: str) -> Ran:
    return home.run("worker", "-A", "jobs:app", "--until-idle", *options)


def made(home: Home, kind: str, payload: object = None, *options: str) -> str:
    return home.run("enqueue", kind, json.dumps(payload or {}), *options).out.strip()


def state_of(home: Home, job_id: str) -> str:
    found: str = home.run("jobs", "show", job_id, "--json").json()["state"]
    return found


# --- which app --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is not an app: write module:app"),
        (":", "is not an app: write module:app"),
        (":app", "is not an app: write module:app"),
        ("jobs:", "is not an app: write module:app"),
        ("jobs.py", "-A 'jobs.py' names no module: write jobs:app, as you would import it"),
        ("./jobs.py:other", "names no module: write jobs:other,"),
        (".jobs", "names no module: write jobs:app,"),
        ("a b", "names no module: write module:app,"),
        ("..", "names no module: write module:app,"),
        ("nowhere", "there is no module 'nowhere' in "),
        ("no.where:app", "there is no module 'no.where' in "),
        ("jobs:nothing", "jobs has no App called 'nothing': write jobs:app"),
        ("jobs:app.handlers", "jobs has no App called 'app.handlers': write jobs:app"),
        ("elsewhere", "elsewhere has no App called 'app': write elsewhere:tasks"),
        ("elsewhere:nothing", "elsewhere has no App called 'nothing': write elsewhere:tasks"),
        ("os:path", "os has no App called 'path', and no other App either"),
    ],
)
def test_an_app_that_is_named_wrongly_is_said_in_a_line(file_home: Home, name: str, problem: str) -> None:
    with_modules(file_home)
    ran = file_home.run("worker", "-A", name)
    assert (ran.code, ran.out) == (2, "")
    assert complaint(ran).startswith("leftfold: usage: ")
    assert problem in complaint(ran)
    assert not file_home.file.exists()


@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("broken", 2, "broken cannot be imported: ZeroDivisionError: division by zero (FOLDER/broken.py, line 2)"),
        ("lacking", 2, "cannot be imported: ModuleNotFoundError: No module named 'no_such_module' (FOLDER/lacking.py,"),
        ("wrong", 2, "wrong cannot be imported: SyntaxError: invalid syntax (wrong.py, line 1)"),
        ("ending", 2, "ending cannot be imported: SystemExit: no settings (FOLDER/ending.py, line 2)"),
        (
            "misplaced",
            2,
            "mysql://… is not a store: write sqlite:///jobs.db or postgresql://user@host/database (FOLDER/m",
        ),
        ("starred", 2, "DesignError: f takes *numbers: int: the arguments of a job are stored by their names"),
        ("memory", 2, "a store in memory belongs to one engine: give the app a file"),
        ("empty", 1, "the app has no jobs yet: decorate a function with @app.job"),
    ],
)
def test_an_app_that_cannot_be_run_is_said_in_a_line(file_home: Home, name: str, code: int, problem: str) -> None:
    with_modules(file_home)
    ran = file_home.run("worker", "-A", name)
    assert (ran.code, ran.out) == (code, "")
    assert problem.replace("FOLDER", str(file_home.folder)) in complaint(ran)
    assert "secret" not in ran.err
    assert not file_home.file.exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--queues", ","], "queue '' is not a name"),
        (["--queues", "a,,b"], "queue '' is not a name"),
        (["-Q", "a b"], "queue 'a b' is not a name"),
        (["--concurrency", "0"], "0 is not in the range"),
        (["--processes", "0"], "0 is not in the range"),
        (["--grace", "nan"], "grace 'nan' is not a span of time"),
        (["--grace", "2d"], "grace is 2d, it must lie between 0s and 1d"),
        (["--poll", "0"], "poll is 0, it must lie between 10ms and 1m"),
        (["--name", "a\nb"], "must be a non-empty text without control characters"),
        (["--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
    ],
    ids=" ".join,
)
def test_wrong_options_are_said_in_a_line(file_home: Home, options: list[str], problem: str) -> None:
    ran = work(with_modules(file_home), *options)
    assert (ran.code, ran.out) == (2, "")
    assert problem in complaint(ran)
    assert not file_home.file.exists()


def test_a_worker_needs_an_app(file_home: Home) -> None:
    ran = file_home.run("worker")
    assert ran.code == 2
    assert "Missing option '-A'" in complaint(ran)


def test_the_store_must_be_of_this_version(shop: Home) -> None:
    shop.sql("UPDATE {schema}.migrations SET version = 99")
    ran = work(shop)
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).startswith("leftfold: store_not_ready: ")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_store_that_cannot_be_reached_is_worth_another_try(server_home: Home, processes: str) -> None:
    away = with_modules(server_home._replace(url="postgresql://nobody@127.0.0.1:1/nothing"))
    ran = work(away, "--processes", processes)
    assert (ran.code, ran.out) == (75, "")
    assert complaint(ran).startswith("leftfold: store_unavailable: ")


# --- what it runs -----------------------------------------------------------------------------------------------------


def test_until_idle_runs_everything_that_is_due_and_ends(shop: Home) -> None:
    double, slow, fail = made(shop, "double", {"number": 21}), made(shop, "slowly", {"number": 1}), made(shop, "fail")
    later = made(shop, "double", {"number": 1}, "--due", "1h")
    foreign = made(shop, "of-another-app")
    ran = work(shop, "--name", "mine")
    assert (ran.code, ran.out) == (0, "")
    shown = shop.run("jobs", "show", double, "--json").json()
    assert (shown["state"], shown["result"]) == ("succeeded", 42)
    assert [state_of(shop, job) for job in (slow, fail)] == ["succeeded", "dead_lettered"]
    assert [state_of(shop, job) for job in (later, foreign)] == ["queued", "queued"]
    assert shop.run("workers") == (0, "", "no workers\n")


def test_only_the_queues_that_are_named_are_worked_on(shop: Home) -> None:
    jobs = {queue: made(shop, "double", {"number": 1}, "--queue", queue) for queue in ("a", "b", "c")}
    assert work(shop, "--queues", "a, b").code == 0
    assert {queue: state_of(shop, job) for queue, job in jobs.items()} == {
        "a": "succeeded", "b": "succeeded", "c": "queued",
    }  # fmt: skip


def test_each_log_line_says_which_job_it_is_about(shop: Home) -> None:
    job = made(shop, "double", {"number": 4})
    as_text = work(shop).err
    assert re.search(rf"^\S+Z INFO +mine \[double {job} attempt 1\] doubling$", as_text, re.MULTILINE)
    job = made(shop, "double", {"number": 5})
    lines = [json.loads(line) for line in work(shop, "--log-format", "json").err.splitlines()]
    (line,) = [line for line in lines if line["logger"] == "mine"]
    about = {"level": "info", "logger": "mine", "message": "doubling", "job_id": job, "kind": "double", "attempt": 1}
    assert {name: value for name, value in line.items() if name != "at"} == {**about, "number": 5}
    assert all({"at", "level", "logger", "message"} <= {*line} for line in lines)


def test_a_higher_log_level_says_less(shop: Home) -> None:
    made(shop, "double", {"number": 4})
    assert work(shop, "--log-level", "warning") == (0, "", "")


def test_two_processes_share_the_work_and_end_together(shop: Home) -> None:
    jobs = [made(shop, "double", {"number": number}) for number in range(3)]
    ran = work(shop, "--processes", "2", "--name", "twin")
    assert (ran.code, ran.out) == (0, "")
    assert len(set(re.findall(r"worker (twin:[0-9a-f]{8}) runs ", ran.err))) == 2
    assert {state_of(shop, job) for job in jobs} == {"succeeded"}


# --- while it runs ----------------------------------------------------------------------------------------------------


@contextmanager
def holding(home: Home, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker that does not end, and wait until it runs a job."""
    command = [sys.executable, "-m", "leftfold", "worker", "-A", "jobs:app", "--name", "mine", *options]
    with subprocess.Popen(command, cwd=home.folder, env=around(home.env), stderr=subprocess.PIPE) as process:
        try:
            eventually((home.folder / "holding").exists)
            yield process
        finally:
            (home.folder / "holding").unlink(missing_ok=True)
            process.kill()


def test_a_worker_is_listed_while_it_runs_and_leaves_when_it_is_told_to(shop: Home) -> None:
    job = made(shop, "hold")
    with holding(shop, "--queues", "default,slow", "--concurrency", "3") as process:
        eventually(lambda: shop.run("workers", "--json").out != "")
        (worker,) = shop.run("workers", "--json").lines()
        assert re.fullmatch("mine:[0-9a-f]{8}", worker["worker"])
        assert (worker["pid"], worker["concurrency"], worker["silent"]) == (process.pid, 3, [])
        assert (worker["queues"], worker["kinds"]) == (["default", "slow"], ["double", "fail", "hold", "slowly"])
        assert "renewals" in worker["loops"]
        assert worker["started_at"] > 1_700_000_000_000_000
        head, row = shop.run("workers").out.splitlines()
        assert head.split() == ["worker", "running", "done", "heard", "of", "queues", "pid", "host"]
        assert row.startswith(f"{worker['worker']}  ")
        assert f"  default, slow  {process.pid}  " in row
        process.send_signal(signal.SIGTERM)
        (shop.folder / "holding").unlink()
        assert process.wait(timeout=30) == 0
    assert state_of(shop, job) == "succeeded"
    assert shop.run("workers", "--json") == (0, "", "")


def test_what_does_not_end_within_the_grace_is_given_back(shop: Home) -> None:
    job = made(shop, "hold")
    with holding(shop, "--grace", "0") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    shown = shop.run("jobs", "show", job, "--json").json()
    assert (shown["state"], shown["failures"]) == ("queued", 0)
    assert [line["event"] for line in shop.run("jobs", "history", job, "--json").lines()][-1] == "released"


def test_a_worker_that_died_is_listed_with_what_it_said_last(shop: Home) -> None:
    made(shop, "hold")
    with holding(shop) as process:
        eventually(lambda: shop.run("workers", "--json").out != "")
        process.kill()
        process.wait(timeout=30)
        (worker,) = shop.run("workers", "--json").lines()
        assert worker["pid"] == process.pid


def test_a_loop_that_is_silent_is_named(home: Home) -> None:
    with home.open() as engine:
        engine.beat("w:1", {"running": 1, "concurrency": 2, "done": 3, "loops": {"claiming": 99.5, "renewals": 0.1}})
    (worker,) = home.run("workers", "--json").lines()
    assert worker["silent"] == ["claiming"]
    assert re.search(r"^w:1 +1 of 2 +3 +(now|\S+ ago) +claiming +all$", home.run("workers").out, re.MULTILINE)


def test_where_there_is_no_store_nobody_is_listed_and_none_is_made(file_home: Home) -> None:
    ran = file_home.run("workers")
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).startswith("leftfold: store_not_ready: ")
    assert list(Path(file_home.folder).iterdir()) == []
