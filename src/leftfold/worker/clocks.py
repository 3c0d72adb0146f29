"""The clock that a worker holds its leases by: it goes on while the machine sleeps, and nobody sets it."""

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Give the seconds since some moment."""
    return time.clock_gettime(_CLOCK)
