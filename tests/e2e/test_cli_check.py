"""`leftfold lifecycle check`: the proof, and that it fails where something is wrong."""

import re
import shutil
from pathlib import Path

import pytest
from tests.e2e.command import run

import leftfold

DIALECTS = ["formal", "authoritative", "reliability", "contract", "quality"]
SMALL = ("lifecycle", "check", "--jobs", "1", "--workers", "1", "--attempts", "1")


def test_a_small_scope_is_searched_and_nothing_is_wrong() -> None:
    ran = run(*SMALL)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"total: \d+ states, \d+ transitions, 0 violations", lines[-1])
    assert re.match(r"  1 job x 1 worker x 1 attempt +\d+ states +\d+ transitions +\d+\.\d s  ok$", lines[1])
    assert [line.split()[0] for line in lines[-6:-1]] == DIALECTS
    assert all(re.search(r" \d+ declared extensions  ok$", line) for line in lines[-6:-1])


def test_the_findings_as_json_are_all_of_standard_output() -> None:
    ran = run(*SMALL, "--json")
    found = ran.json()
    assert (ran.code, ran.err) == (0, "")
    assert {*found} == {"scopes", "untaken", "dialects", "states", "transitions", "violations"}
    assert found["dialects"] == {name: [] for name in DIALECTS}
    assert (found["violations"], found["untaken"]) == (0, [])
    (scope,) = found["scopes"]
    assert (scope["jobs"], scope["workers"], scope["attempts"], scope["violation"]) == (1, 1, 1, None)
    assert found["states"] == scope["states"] > 100
    assert found["transitions"] == scope["transitions"] > found["states"]


def test_a_scope_of_one_number_takes_one_for_the_others() -> None:
    (scope,) = run("lifecycle", "check", "--workers", "1", "--json").json()["scopes"]
    assert (scope["jobs"], scope["workers"], scope["attempts"]) == (1, 1, 1)


def broken_copy(folder: Path, file: str, line: str, instead: str) -> str:
    """Copy the package, break one line of it, and give the folder to import it from."""
    package = Path(leftfold.__file__).parent
    shutil.copytree(package, folder / "leftfold", ignore=shutil.ignore_patterns("__pycache__"))
    target = folder / "leftfold" / file
    source = target.read_text(encoding="utf-8")
    assert source.count(line) == 1, f"{file} has no such line any more: {line}"
    target.write_text(source.replace(line, instead), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("file", "line", "instead"),
    [
        ("core/decide.py", "\n        _check_fence(job, command)\n", "\n"),
        ("core/decide.py", "by.attempt != job.attempt or ", ""),
        ("core/job.py", "changes.update(attempt=job.attempt + 1,", "changes.update(attempt=job.attempt,"),
        ("core/answers.py", "if job.due is not None and job.due > now:", "if False:"),
    ],
    ids=["no fence", "a fence without the attempt", "attempts are not counted", "claimed before it is due"],
)
def test_a_planted_bug_is_found_and_the_shortest_path_to_it_is_printed(
    tmp_path: Path, file: str, line: str, instead: str
) -> None:
    broken = broken_copy(tmp_path, file, line, instead)
    ran = run(
        "lifecycle", "check", "--workers", "2", "--attempts", "2", cwd=tmp_path, env={"PYTHONPATH": broken}, fresh=True
    )
    assert ran.code == 1
    assert "Traceback" not in ran.err
    assert "VIOLATED" in ran.out
    *steps, total = ran.out.partition("the shortest path to it:\n")[2].splitlines()
    assert [step.split()[0] for step in steps] == [f"{number}." for number in range(1, len(steps) + 1)]
    assert "client: enqueue" in steps[0]
    assert re.fullmatch(r"total: \d+ states, \d+ transitions, [1-9]\d* violations", total)


def test_a_planted_bug_is_told_in_json_too(tmp_path: Path) -> None:
    broken = broken_copy(tmp_path, "core/decide.py", "\n        _check_fence(job, command)\n", "\n")
    ran = run(
        "lifecycle",
        "check",
        "--workers",
        "2",
        "--attempts",
        "2",
        "--json",
        cwd=tmp_path,
        env={"PYTHONPATH": broken},
        fresh=True,
    )
    assert (ran.code, ran.err) == (1, "")
    found = ran.json()
    (scope,) = found["scopes"]
    assert found["violations"] == 1
    assert {*scope["violation"]} == {"problem", "path"}
    assert scope["violation"]["path"]


def test_a_dialect_that_departs_from_its_seed_is_found(tmp_path: Path) -> None:
    line = '"running":   {"heartbeat": "running", "succeeded": "succeeded", '
    broken = broken_copy(tmp_path, "dialects/contract.py", line, '"running":   {"heartbeat": "running", ')
    ran = run(*SMALL, cwd=tmp_path, env={"PYTHONPATH": broken}, fresh=True)
    assert ran.code == 1
    assert re.search(
        r"contract +\d+ declared extensions  VIOLATED\n    running -succeeded-> succeeded: .*nor decl", ran.out
    )
    assert ran.out.splitlines()[-1].endswith(", 1 violations")
