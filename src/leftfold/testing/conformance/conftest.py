"""The fixtures of the kit: a scene per case, sync and async, audited at its end."""

from collections.abc import Iterator

import pytest

from leftfold.core.errors import StoreError, ValidationError
from leftfold.testing.conformance.bridge import Loop
from leftfold.testing.conformance.worlds import World, drop_spares, world_of

pytest.register_assert_rewrite("leftfold.testing.conformance.audit", "leftfold.testing.conformance.scene")

from leftfold.testing.conformance.audit import audit  # noqa: E402 - behind the line that makes its asserts speak
from leftfold.testing.conformance.scene import Scene  # noqa: E402


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let each case run in the modes that were asked for."""
    if "mode" in metafunc.fixturenames:
        wish = metafunc.config.getoption("--store-mode")
        metafunc.parametrize("mode", ["sync", "async"] if wish == "both" else [wish])


@pytest.hookimpl(trylast=True)
def pytest_leftfold_world(url: str) -> World:
    """Give a world in one of the stores that leftfold brings, if nobody else gave one."""
    return world_of(url)


def pytest_sessionfinish() -> None:
    """Leave no trace."""
    drop_spares()


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """Give the loop that all async engines run on."""
    running = Loop()
    yield running
    running.close()


@pytest.fixture
def scene(mode: str, request: pytest.FixtureRequest, loop: Loop) -> Iterator[Scene]:
    """Give an engine on a new world; at the end, everything in it has to add up."""

    def world() -> World:
        made: World = request.config.hook.pytest_leftfold_world(url=request.config.getoption("--store-url"))
        return made

    try:
        stage = Scene(world(), loop if mode == "async" else None, world)
    except (ValidationError, StoreError) as problem:
        pytest.exit(f"the store cannot be opened: {problem}", pytest.ExitCode.USAGE_ERROR)
    try:
        yield stage
        audit(stage)
    finally:
        stage.close()
