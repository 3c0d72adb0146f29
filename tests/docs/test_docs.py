"""The docs are true: code blocks run, rendered parts match the tables, links lead somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from leftfold.cli import cli
from leftfold.core import errors

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


def renderer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", ROOT / "docs" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("block", BLOCKS)
def test_a_code_block_runs_and_prints_what_its_comments_say(block: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    for promised in re.findall(r"^ *print\(.*\)\s+# (.*)$", block, re.MULTILINE):
        assert promised in run.stdout.splitlines()


def test_the_quickstart_of_the_readme_works_as_printed_and_without_any_extra(tmp_path: Path) -> None:
    block, printed = re.search(  # type: ignore[union-attr]  # then this test fails, as it should
        r"```sh\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    ).groups()
    assert len(block.splitlines()) <= 15
    extras, empty = tmp_path / "extras", tmp_path / "empty"
    for extra in ("psycopg", "pysqlite3", "uvloop", "starlette", "rich"):
        (extras / extra).mkdir(parents=True)
        (extras / extra / "__init__.py").write_text("raise ImportError('not installed')", encoding="utf-8")
    empty.mkdir()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("LEFTFOLD_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    modules = os.pathsep.join([str(extras), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        ["/bin/sh", "-e", "-c", block],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60, cwd=empty,
        env={**ours, "PATH": path, "PYTHONPATH": modules},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout
    assert shape(run.stdout) == shape(printed)


def shape(text: str) -> list[str]:
    """Give what was printed without what differs every time: times, ids, names of machines, and so widths."""
    for pattern, name in (
        (r"\d{4}-\d\d-\d\d[T ][0-9:.]+Z", "TIME"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
        (r"\S+:[0-9a-f]{8}\b", "WORKER"),
        (r"\S+@\S+", "USER"),
        (r"\+[0-9.]+(ms|s)\b|\d+\.\d+ s\b", "SPAN"),
        (r" +", " "),
    ):
        text = re.sub(pattern, name, text)
    return text.splitlines()


def test_there_are_code_blocks() -> None:
    assert len(BLOCKS) >= 2


def test_the_rendered_parts_match_the_tables() -> None:
    pages = renderer().pages()
    assert len(pages) >= 5
    stale = [file.name for file, content in pages.items() if file.read_text(encoding="utf-8") != content]
    assert not stale, "run `make docs`"


def test_a_stale_part_is_noticed() -> None:
    text = "<!-- rendered: matrix -->\n| something else |\n<!-- end -->"
    assert renderer().rendered(text) != text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_command_in_the_docs_exists() -> None:
    for page in PAGES:
        for line in re.findall(
            r"^\$ (?:\.venv/bin/)?leftfold ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert line in cli.commands, f"{page.name}: leftfold {line}"
        for target in re.findall(r"^\$ make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), target


def subclasses(kind: type[errors.LeftfoldError]) -> list[type[errors.LeftfoldError]]:
    ours = [child for child in kind.__subclasses__() if child.__module__ == kind.__module__]  # tests have some, too
    return [kind, *(each for child in ours for each in subclasses(child))]


def test_every_error_code_is_documented() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([a-z_]+)` \| `(\w+)` \|", page, re.MULTILINE))
    assert documented == {kind.code: kind.__name__ for kind in subclasses(errors.LeftfoldError)}
