"""Each SQLite library in turn."""

import pytest


@pytest.fixture(params=["stdlib", "pysqlite3"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each SQLite library, for the processes that are started from here on."""
    name: str = request.param
    if name == "pysqlite3":
        pytest.importorskip("pysqlite3")
    monkeypatch.setenv("LEFTFOLD_SQLITE", name)
    return name
