"""What pytest has to know before it collects the store conformance kit: its options, and its one hook.

The options of a conftest come too late for `--pyargs`, so pytest finds this module by an entry point, in every run. It
therefore imports nothing of leftfold, and speaks up only if the kit, `leftfold.testing.conformance`, is asked for.
"""

from collections.abc import Sequence
from typing import Any, Final

import pytest

KIT: Final = "leftfold.testing.conformance"
MODES: Final = ("sync", "async", "both")


class Hooks:
    """The hook by which a store of somebody else comes to the kit."""

    @staticmethod
    @pytest.hookspec(firstresult=True)
    def pytest_leftfold_world(url: str) -> Any:
        """Give a new and empty `leftfold.testing.conformance.worlds.World`, or None if the URL is not yours."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Let the author of a store say how a world is made in it."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_load_initial_conftests(parser: pytest.Parser, args: Sequence[str]) -> None:
    """Add the options if the kit is to be run, and only then, so that they are in nobody's way."""
    if not _is_asked_for(args):
        return
    group = parser.getgroup("leftfold", "the store conformance kit of leftfold")
    group.addoption("--store-url", metavar="URL", help="the store to prove: sqlite:///x.db or postgresql://…")
    group.addoption("--store-mode", choices=MODES, default="both", help="prove Engine, AsyncEngine, or both (default)")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to begin without a store."""
    config = session.config
    if _is_asked_for(config.args) and not config.getoption("--store-url", None):
        raise pytest.UsageError(
            f"say which store to prove: pytest --pyargs {KIT} --store-url sqlite:///x.db (or postgresql://user@host/db)"
        )


def _is_asked_for(args: Sequence[str]) -> bool:
    return any(KIT in arg.replace("/", ".") for arg in args)
