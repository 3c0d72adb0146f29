"""Style as tests: what prose would only ask for."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts.render_async import rendered

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "leftfold"
FILES = sorted(SOURCE.rglob("*.py"))
EVERYTHING = [
    file
    for pattern in ("*", "chaos/*", "docs/**/*", "scripts/*", "src/**/*", "tests/**/*", "requirements/*", ".ci/*")
    for file in sorted(ROOT.glob(pattern))
    if file.is_file() and "__pycache__" not in file.parts
]

#: What each package may import of ours. Dependencies point one way.
OURS = {
    "core": {"core"},
    "dialects": {"core", "dialects"},
    "proof": {"core", "dialects", "proof"},
    "store": {"core", "store"},
    "engine": {"core", "store", "times", "asking", "engine"},
    "aengine": {"core", "store", "times", "asking", "aengine"},
    "app": {"core", "store", "times", "asking", "engine", "aengine", "opening", "app", "worker"},
    "worker": {"core", "store", "times", "asking", "engine", "aengine", "opening", "app", "worker"},
    "testing": {"core", "dialects", "store", "times", "asking", "engine", "aengine", "opening", "testing"},
    "cli": {"core", "dialects", "proof", "store", "times", "asking", "engine", "opening", "redrive", "app", "worker",
            "cli"},
    "": {"core", "dialects", "store", "times", "asking", "engine", "aengine", "opening", "app", "worker", "cli"},
}  # fmt: skip
#: What the pure packages may import beside ours: nothing that reads a clock, a file, a socket or a random number.
PURE = {
    "base64",
    "collections",
    "enum",
    "functools",
    "hashlib",
    "html",
    "itertools",
    "json",
    "math",
    "msgspec",
    "re",
    "typing",
}


def package(file: Path) -> str:
    parts = file.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            yield node.module or ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_point_one_way(file: Path) -> None:
    for name in imports(file):
        top, _, rest = name.partition(".")
        if top == "leftfold":
            assert not rest or rest.partition(".")[0] in OURS[package(file)], name
        elif package(file) in {"core", "dialects"}:
            assert top in PURE, f"{name} is not for a pure package"


def test_the_pure_packages_load_no_io_of_ours() -> None:
    # The package itself loads the engine; a stand-in for it shows what the pure ones load by themselves.
    probe = (
        "import sys, types; bare = types.ModuleType('leftfold'); bare.__path__ = [sys.argv[1]];"
        "sys.modules['leftfold'] = bare; import leftfold.core.decide, leftfold.dialects;"
        "print(*(m for m in sys.modules if 'leftfold.' in m))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe, str(SOURCE)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded
    assert all(name.startswith(("leftfold.core", "leftfold.dialects")) for name in loaded)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_files_and_functions_are_short(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= (300 if package(file) == "core" else 400)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} does not fit a screen"


@pytest.mark.parametrize(
    "file",
    [file for file in FILES if file.parent != SOURCE / "testing" / "conformance"],  # there pytest asserts
    ids=lambda file: str(file.relative_to(SOURCE)),
)
def test_the_source_has_no_assert_that_python_would_strip(file: Path) -> None:
    assert not [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Assert)]


def test_no_module_is_dead() -> None:
    used = {name for file in FILES for name in imports(file)}
    used |= {f"{name}.{alias.name}" for file in FILES for name, alias in _from_imports(file)}
    entries = {"leftfold.__main__", "leftfold.cli", "leftfold.worker.cell"}
    for file in FILES:
        name = ".".join(["leftfold", *file.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        packages = {"leftfold", "leftfold.core", "leftfold.proof", "leftfold.store.sqlite", "leftfold.store.postgres"}
        assert name in used | entries | packages or name.startswith("leftfold.testing"), f"nobody imports {name}"


def _from_imports(file: Path) -> Iterator[tuple[str, ast.alias]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias) for alias in node.names)


@pytest.mark.parametrize("file", EVERYTHING, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_speaks_of_a_machine_or_of_later(file: Path) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    later = "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3])  # spelled apart, for this file is read as well
    assert not re.search(rf"\b({later})\b", text)
    assert str(ROOT) + "/" not in text
    assert ".." + "/shared" not in text


def test_the_async_engine_is_rendered_from_the_sync_one() -> None:
    files = rendered()
    assert {file.name for file in files} == {file.name for file in (SOURCE / "aengine").glob("*.py")}
    for file, text in files.items():
        ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(file), "-"]
        sorted_imports = [sys.executable, "-m", "ruff", "check", "--fix-only", "-q", "--stdin-filename", str(file), "-"]
        for tool in (sorted_imports, ruff):
            text = subprocess.run(tool, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout  # noqa: PLW2901
        assert file.read_text(encoding="utf-8") == text, "run make render"


def test_both_dialects_have_the_same_queries_and_all_are_used() -> None:
    texts = [
        (SOURCE / "store" / dialect / "queries.sql").read_text(encoding="utf-8") for dialect in ("sqlite", "postgres")
    ]
    lite, post = (re.findall(r"^-- name: (\w+)$", text, re.MULTILINE) for text in texts)
    assert lite == post
    code = "".join(file.read_text(encoding="utf-8") for file in FILES)
    assert [name for name in lite if f'"{name}"' not in code] == []


def test_no_two_test_files_have_one_name() -> None:
    """The folders are no packages: pytest refuses the second file of a name, but only when both are in one run."""
    names = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_the_version_stands_in_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == version


def test_the_pinned_requirements_name_no_registry() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in file.read_text(encoding="utf-8")


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"\]\((\d{4}-[a-z-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(file.name for file in folder.glob("[0-9]*.md"))
