"""What the errors of SQLite mean, and when to wait."""

import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from leftfold.core.errors import (
    OutcomeUnknownError,
    StoreDeniedError,
    StoreError,
    StoreNotReadyError,
    StoreUnavailableError,
)
from leftfold.store.query import Again
from leftfold.store.sqlite.library import sqlite

_BUSY_SNAPSHOT: Final = 517
_ANEW: Final = "roll your transaction back and begin it anew, with BEGIN IMMEDIATE"


def patiently(act: Callable[[], object], seconds: float) -> None:
    """Do what SQLite refuses at once, and not after its busy timeout, while another process does the same."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            act()
        except sqlite.OperationalError as problem:
            if "locked" not in str(problem) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def is_locked(problem: BaseException | None) -> bool:
    """Tell whether somebody else writes, so that it may go through a moment later."""
    return isinstance(problem, sqlite.Error) and not _is_stale(problem) and _says_locked(str(problem))


def _says_locked(text: str) -> bool:
    return "locked" in text or "busy" in text


def _is_stale(problem: Exception) -> bool:
    """Tell whether others have written since the transaction began to read. Not every library says so."""
    return getattr(problem, "sqlite_errorcode", None) == _BUSY_SNAPSHOT


def raise_translated(problem: BaseException, path: str, *, committing: bool = False, begun: bool = False) -> NoReturn:
    """Raise what an error means, because of it; an error of ours is raised as it is."""
    meant = translated(problem, path, committing=committing, begun=begun)
    if meant is problem:
        raise meant
    raise meant from problem


def translated(problem: BaseException, path: str, *, committing: bool = False, begun: bool = False) -> BaseException:
    """Say what an error of the library means; any other is given as it is. `begun`: by the caller's own BEGIN."""
    if not isinstance(problem, sqlite.Error):
        return problem
    text = str(problem)
    if _is_stale(problem):
        return StoreUnavailableError(f"{path} was written to by others since you began to read: {_ANEW}")
    if _says_locked(text) and begun:
        return StoreUnavailableError(
            f"{path} is locked by another connection, or others wrote to it since you began to read: {_ANEW}"
        )
    if isinstance(problem, sqlite.IntegrityError) and "UNIQUE" in text and ("jobs.key" in text or "request_id" in text):
        return Again()
    for words, (kind, meaning) in _MEANINGS.items():
        if words in text:
            return kind(meaning.format(path=path, text=text))
    if committing:
        return OutcomeUnknownError(f"the commit to {path} failed: {text}; call again with the same request_id")
    if "disk I/O" in text:
        return StoreError(f"{path}: {text}: nothing was written; look at the disk, then try again")
    return StoreError(f"{path}: {text}")


#: What the library says, and what it means. The first that fits counts.
_MEANINGS: Final[Mapping[str, tuple[type[StoreError], str]]] = {
    "locked": (StoreUnavailableError, "{path} is locked by another connection: try again"),
    "busy": (StoreUnavailableError, "{path} is locked by another connection: try again"),
    "no such table": (StoreNotReadyError, "{path} holds no leftfold tables: run `leftfold migrate` first"),
    "malformed": (StoreError, "{path}: {text}: look at the disk, and restore a backup if it stays so"),
    "not a database": (StoreError, "{path}: {text}: name a store, or a file that is not there yet"),
    "unable to open": (StoreError, "{path} cannot be opened: does its folder exist, and may we write there?"),
    "readonly": (StoreDeniedError, "{path} is read-only: may this user write to the file and its folder?"),
    "full": (StoreUnavailableError, "no space is left for {path}: nothing was written; make room, then try again"),
    "closed database": (StoreError, "{path}: this connection is closed: open it anew"),
}
