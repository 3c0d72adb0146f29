"""The command itself: how it is started, what it shows by default, and where its output goes."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.e2e.command import complaint, run, start, watched

SCRIPT = Path(sys.executable).with_name("leftfold")
ESCAPE = "\x1b"


def test_the_script_stands_beside_the_interpreter_and_is_the_same_command() -> None:
    assert SCRIPT.exists()
    by_script = start(["lifecycle", "--json"], program=str(SCRIPT))
    assert by_script.code == 0
    assert by_script.out == run("lifecycle", "--json").out


def test_the_version_is_that_of_the_package() -> None:
    ran = start(["--version"], program=str(SCRIPT))
    assert (ran.code, ran.out.strip()) == (0, f"leftfold, version {version('leftfold')}")
    assert run("--version").out.strip().endswith(f"version {version('leftfold')}")


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize(
    "command",
    [
        [], ["demo"], ["lifecycle"], ["lifecycle", "check"], ["migrate"], ["enqueue"], ["doctor"],
        ["worker"], ["workers"], ["dlq"], ["dlq", "list"], ["dlq", "show"], ["dlq", "retry"],
        ["jobs"], ["jobs", "list"], ["jobs", "show"], ["jobs", "history"],
        ["jobs", "cancel"], ["jobs", "signal"],
        ["verify"], ["rebuild"], ["export"], ["import"], ["feed"], ["feed", "list"],
        ["feed", "read"], ["feed", "forget"],
        ["queues"], ["queues", "list"], ["queues", "pause"], ["queues", "resume"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_explains_itself(command: list[str], option: str) -> None:
    ran = run(*command, option)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["--nothing"], "No such option '--nothing'"),
        (["demo", "extra"], "Got unexpected extra argument (extra)"),
    ],
)
def test_a_wrong_command_line_gives_one_clear_message(arguments: list[str], problem: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert problem in complaint(ran)


def test_without_a_command_the_commands_are_listed() -> None:
    ran = run()
    assert ran.code == 2
    assert re.search(r"^  demo .*^  lifecycle ", ran.out + ran.err, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}], ids=["piped", "NO_COLOR"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["lifecycle"],
        ["lifecycle", "--matrix"],
        ["lifecycle", "--dialect", "quality"],
        ["lifecycle", "check", "--jobs", "1"],
        ["lifecycle", "nonsense"],
    ],
    ids=" ".join,
)
def test_what_is_not_read_by_a_person_has_no_escape_codes(arguments: list[str], environment: dict[str, str]) -> None:
    ran = run(*arguments, env=environment)
    assert ESCAPE not in ran.out + ran.err


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("arguments", [["lifecycle"], ["lifecycle", "check", "--jobs", "1"]], ids=" ".join)
def test_a_terminal_gets_colours_and_the_same_words(arguments: list[str]) -> None:
    ran = watched(*arguments)
    assert ran.code == 0
    assert COLOUR.search(ran.out)
    plain = COLOUR.sub("", ran.out).replace("\r\x1b[2K", "").splitlines()
    assert plain[0] == run(*arguments).out.splitlines()[0]


@pytest.mark.parametrize("arguments", [["lifecycle"], ["lifecycle", "check", "--jobs", "1"]], ids=" ".join)
def test_no_color_takes_the_colours_off_a_terminal(arguments: list[str]) -> None:
    assert not COLOUR.search(watched(*arguments, env={"NO_COLOR": "1"}).out)
