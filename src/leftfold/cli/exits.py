"""How a command ends: the exit codes, and the one line that says what is wrong."""

import os
from collections.abc import Mapping
from typing import Final

import click

from leftfold.cli.text import clean
from leftfold.core import errors as e

FAILURE: Final = 1
USAGE: Final = 2
UNHEALTHY: Final = 5
INTERRUPTED: Final = 130

#: An error ends the command with the code of the nearest of its classes.
EXITS: Final[Mapping[type[e.LeftfoldError], int]] = {
    e.LeftfoldError:         FAILURE,
    e.ValidationError:       USAGE,  # the input is as wrong as a wrong option
    e.JobNotFoundError:      3,
    e.RefusedError:          4,      # a conflict: somebody was faster, or the lifecycle says no
    e.StoreDeniedError:      6,
    e.StoreUnavailableError: 75,     # sysexits.h calls it EX_TEMPFAIL: try again
    e.OutcomeUnknownError:   75,
}  # fmt: skip


def exit_code(error: type[e.LeftfoldError]) -> int:
    """Give the exit code of an error."""
    return next(EXITS[kind] for kind in error.__mro__ if kind in EXITS)


def colour() -> bool | None:
    """Tell whether to use colours: as NO_COLOR and FORCE_COLOR say, else (None) wherever there is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def complain(code: str, message: str) -> None:
    """Say in one line on standard error what is wrong."""
    shown = clean(" ".join(message.split()))
    click.echo(f"leftfold: {click.style(code, fg='red')}: {shown}", err=True, color=colour())
