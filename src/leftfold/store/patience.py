"""How long to wait before the next try: a moment, then longer, and never in step with the others who wait."""

import random
from collections.abc import Iterator
from typing import Final

FIRST_SECONDS: Final = 0.004
LONGEST_SECONDS: Final = 0.1


def pauses() -> Iterator[float]:
    """Give pauses in seconds, without an end."""
    most = FIRST_SECONDS
    while True:
        yield random.uniform(most / 2, most)  # noqa: S311 - nobody must guess it
        most = min(2 * most, LONGEST_SECONDS)
