"""Plain text for terminals: aligned tables, times and texts that people can read, and a progress line."""

import shutil
import sys
import time
import unicodedata
from collections.abc import Sequence
from typing import Final

import click

from leftfold.core.limits import DAY, MINUTE, SECOND
from leftfold.times import to_datetime

_EVERY: Final = 10.0  # seconds between two progress lines where nobody watches a terminal
_HOUR: Final = 60 * MINUTE


def table(head: Sequence[str], rows: Sequence[Sequence[str]], gap: int = 2) -> list[str]:
    """Give a table as lines, each column as wide as it needs to be. Cells may be styled."""
    widths = [max(_width(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [_line(row, widths, gap) for row in (head, *rows)]
    return [click.style(lines[0], bold=True), *lines[1:]]


def _line(row: Sequence[str], widths: Sequence[int], gap: int) -> str:
    cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
    return (" " * gap).join(cells).rstrip()


def _width(cell: str) -> int:
    """Give how many columns of a terminal a text takes."""
    plain = click.unstyle(cell)
    if plain.isascii():
        return len(plain)
    return sum(0 if unicodedata.combining(char) else 2 if _is_wide(char) else 1 for char in plain)


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def on_terminal() -> bool:
    """Tell whether a person sees standard output."""
    return sys.stdout is not None and sys.stdout.isatty()


def terminal_width() -> int | None:
    """Give how wide the terminal is; None where standard output is none."""
    return shutil.get_terminal_size().columns if on_terminal() else None


def clean(text: str) -> str:
    """Make a text one line that a terminal shows and does not obey: control characters are spelled out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shorten(text: str, most: int) -> str:
    """Cut a text to so many columns, and show that it was cut."""
    if _width(text) <= most:
        return text
    while _width(text) > max(most - 1, 0):
        text = text[: -max((_width(text) - most) // 2, 1)]
    return text + "…"


def span(micros: int) -> str:
    """Give a span of time in its two largest units."""
    if micros < SECOND:
        return f"{micros / 1000:.{1 if micros < 10_000 else 0}f}ms".replace(".0ms", "ms") if micros else "0s"
    if micros < 10 * SECOND:
        return f"{micros / SECOND:.1f}s".replace(".0s", "s")
    micros = round(micros / SECOND) * SECOND
    units = (("d", DAY), ("h", _HOUR), ("m", MINUTE), ("s", SECOND))
    first = next(place for place, (_, unit) in enumerate(units) if micros >= unit)
    shown = ""
    for name, unit in units[first : first + 2]:
        count, micros = divmod(micros, unit)
        shown += f"{count}{name}" if count else ""
    return shown


def ago(moment: int, now: int) -> str:
    """Give a moment as seen from now."""
    if abs(now - moment) < SECOND:
        return "now"
    return f"{span(now - moment)} ago" if moment < now else f"in {span(moment - now)}"


def clock(moment: int) -> str:
    """Give a moment in full, UTC."""
    return to_datetime(moment).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


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
