"""A clock that stands still until it is told to move."""

from typing import Final

from leftfold.times import Span, microseconds

START: Final = 1_700_000_000_000_000


class FakeClock:
    """Hand it to `leftfold.open(clock=…)`: the store then has no other time."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        """Give the time, in microseconds since 1970."""
        return self.now

    def advance(self, span: Span) -> None:
        """Let seconds pass."""
        self.now += microseconds("span", span)
