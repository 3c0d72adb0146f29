"""A PostgreSQL of one's own is gone with the process that started it, and with a start that fails."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually

from leftfold.core.errors import StoreError
from leftfold.testing import postgres

OWNER = """
import signal
from leftfold.testing.postgres import running
with running() as server:
    print(server.pid, server.folder, flush=True)
    signal.pause()
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_ends_with_the_process_that_started_it(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert is_there(int(pid))
        os.kill(owner.pid, how)
    eventually(lambda: not is_there(int(pid)), 60)
    shutil.rmtree(folder)


def test_a_server_that_takes_too_long_to_start_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def never(server: postgres.OwnServer) -> bool:
        started.append(server.pid)
        return False

    monkeypatch.setattr(postgres, "_START_SECONDS", 0.0)
    monkeypatch.setattr(postgres.OwnServer, "_answers", never)
    with pytest.raises(StoreError, match="PostgreSQL did not start"), postgres.running():
        pass
    assert started
    assert not any(is_there(pid) for pid in started)
