"""What the tests of the stores share: a place for two stores per test."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.store.world import Place, World

from leftfold.core import decide, endings
from leftfold.store import ops
from leftfold.testing.postgres import Server

_NUMBERS = count(1)

#: How many times as many examples as usual are tried: LEFTFOLD_EXAMPLES=20 for a long night.
MORE = int(os.environ.get("LEFTFOLD_EXAMPLES", "1"))

settings.register_profile(
    "stores",
    max_examples=20 * MORE,
    stateful_step_count=80,
    deadline=None,
    derandomize=MORE == 1,
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if MORE > 1 else [])],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


#: A limit of events that a few notes reach.
FEW_EVENTS = 12


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let jobs have few events, so that the limit is reached soon."""
    monkeypatch.setattr(decide, "EVENTS_PER_JOB_MAX", FEW_EVENTS)
    monkeypatch.setattr(endings, "EVENTS_PER_JOB_MAX", FEW_EVENTS)
    monkeypatch.setattr(ops, "EVENTS_PER_JOB_MAX", FEW_EVENTS)
    return FEW_EVENTS


@pytest.fixture
def place(postgres: Server, tmp_path: Path) -> Place:
    """A folder, and a schema that nobody else uses."""
    return Place(tmp_path, postgres.url(), f"test_{next(_NUMBERS)}")


@pytest.fixture
def world(place: Place) -> Iterator[World]:
    """A file, a schema and the model, empty."""
    with World(place) as world:
        yield world
