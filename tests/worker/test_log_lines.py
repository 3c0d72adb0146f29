"""Log lines: whatever somebody logs, a line is a line."""

import json
import logging
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from leftfold.worker.logs import set_up


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back behind the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def told(form: Any, log: Any) -> list[str]:
    stream = StringIO()
    logging.getLogger().handlers[:] = []  # that of the run of tests raises where it should not
    set_up("info", form, stream)
    log(logging.getLogger("somebody"))
    return stream.getvalue().splitlines()


ODD: dict[str, Any] = {
    "no number": lambda log: log.info("x", extra={"ratio": float("nan")}),
    "arguments that do not fit": lambda log: log.info("%d of %d", *["many"]),
    "names of ours": lambda log: log.info("x", extra={"kind": "mine", "at": 1, "level": 2}),
    "a stack": lambda log: log.info("x", stack_info=True),
    "an object that is no text": lambda log: log.info("%s", type("E", (), {"__str__": lambda _: 1 / 0})()),
}


@pytest.mark.parametrize("log", ODD.values(), ids=ODD)
def test_a_line_for_programs_is_json(root: logging.Logger, capsys: pytest.CaptureFixture[str], log: Any) -> None:
    (line,) = told("json", log)
    read = json.loads(line, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert (read["level"], read["logger"]) == ("info", "somebody")
    assert capsys.readouterr().err == "", "no traceback of the logging itself"


def test_names_of_ours_and_of_others_stand_side_by_side(root: logging.Logger) -> None:
    (line,) = told("json", ODD["names of ours"])
    read = json.loads(line)
    assert (read["kind_"], read["at_"], read["level_"], read["level"]) == ("mine", 1, 2, "info")
    (line,) = told("json", ODD["a stack"])
    assert "test_log_lines" in json.loads(line)["stack"]


def test_arguments_that_do_not_fit_are_shown(root: logging.Logger) -> None:
    (line,) = told("text", ODD["arguments that do not fit"])
    assert "%d of %d ('many',) (TypeError" in line


def test_handlers_of_the_app_stay(root: logging.Logger, tmp_path: Path) -> None:
    file = logging.FileHandler(tmp_path / "mine.log")
    file.setFormatter(logging.Formatter("%(job_id)s %(message)s"))
    root.handlers[:] = [file, logging.StreamHandler(sys.stderr)]
    set_up("info", "text", StringIO())
    logging.getLogger("somebody").info("hello")
    assert len(root.handlers) == 2, "theirs and ours; what would say everything twice is gone"
    file.close()
    assert (tmp_path / "mine.log").read_text() == "None hello\n"
