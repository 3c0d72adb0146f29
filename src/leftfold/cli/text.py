"""Plain text for terminals: aligned tables, times and texts that people can read, and a progress line."""

import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Sequence
from typing import Final, Self

import click

from leftfold.core.limits import DAY, MINUTE, SECOND
from leftfold.times import to_datetime

_BAR: Final = 24  # columns
_AGAIN: Final = 0.1  # seconds between two pictures of a bar
_NARROW: Final = 40  # columns; where there are fewer, texts are left as they are
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


def wrapped(text: str, before: int, more: int = 0) -> str:
    """Break a text between words where a terminal would break it anywhere; so many columns stand before it."""
    width = terminal_width()
    if width is None or width - before < _NARROW:
        return text
    return f"\n{' ' * (before + more)}".join(textwrap.wrap(text, width - before - more, break_on_hyphens=False))


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
            _write_over(shorten(text, shutil.get_terminal_size().columns - 1))
        elif time.monotonic() - self._shown_at >= _EVERY:
            self._shown_at = time.monotonic()
            click.echo(text, err=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._watched:
            _write_over("")


def _write_over(text: str) -> None:
    """Write over the last line of the terminal. `click.echo` would take the escape for a colour, and leave it out."""
    sys.stderr.write(f"\r\x1b[2K{text}")
    sys.stderr.flush()


class Bar:
    """How far something is, in one line on standard error, where that is a terminal; gone when it is done.

    Where the data itself goes to the same terminal, nothing is shown between its lines.
    """

    def __init__(self, what: str, total: int | None = None, *, data: bool = False) -> None:
        self._what = what
        self._total = total
        self._watched = sys.stderr is not None and sys.stderr.isatty() and not (data and on_terminal())
        self._began = time.monotonic()
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watched and self._shown_at:
            _write_over("")

    def show(self, done: int) -> None:
        """Say how many are done."""
        now = time.monotonic()
        if self._watched and now - self._shown_at >= _AGAIN:
            self._shown_at = now
            _write_over(shorten(self._text(done, now - self._began), shutil.get_terminal_size().columns - 1))

    def _text(self, done: int, seconds: float) -> str:
        speed = done / seconds if seconds else 0.0
        if not self._total:
            return f"{done:,} {self._what}, {speed:,.0f}/s"
        part = min(done / self._total, 1.0)  # the total is what the counters say: more may have come since
        left = span(round((self._total - done) / speed) * SECOND) if speed and done < self._total else "0s"
        return f"{bar(part)} {part:4.0%}  {done:,} of {self._total:,} {self._what}, {speed:,.0f}/s, {left} left"


def bar(part: float) -> str:
    """Draw how much of something is done, for standard error."""
    full, empty = ("█", "░") if "utf" in sys.stderr.encoding.lower() else ("#", "-")
    return (full * int(part * _BAR)).ljust(_BAR, empty)


def number(count: int, what: str) -> str:
    """Give how many of something there are, in words."""
    return f"{count:,} {what}" if count != 1 else f"1 {what.removesuffix('s')}"
