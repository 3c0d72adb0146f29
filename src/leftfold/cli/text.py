"""Plain text for terminals: aligned tables, and a progress line that keeps out of the way."""

import sys
import time
from collections.abc import Sequence
from typing import Final

import click

_EVERY: Final = 10.0  # seconds between two progress lines where nobody watches a terminal


def table(head: Sequence[str], rows: Sequence[Sequence[str]], gap: int = 2) -> list[str]:
    """Give a table as lines, each column as wide as it needs to be."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    space = " " * gap
    lines = [space.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return [click.style(lines[0].rstrip(), bold=True), *(line.rstrip() for line in lines[1:])]


class ProgressLine:
    """One line on standard error, written over on a terminal and repeated now and then elsewhere."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._shown_at = time.monotonic()

    def show(self, text: str) -> None:
        """Say how far it is."""
        if self._watched:
            click.echo(f"\r\x1b[2K{text}", err=True, nl=False)
        elif time.monotonic() - self._shown_at >= _EVERY:
            self._shown_at = time.monotonic()
            click.echo(text, err=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._watched:
            click.echo("\r\x1b[2K", err=True, nl=False)
