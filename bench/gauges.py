"""How the machine is just now: on a noisy one, a little work does not always take the same time."""

import statistics
import time


def processor() -> float:
    """Give how long a little work takes now, in milliseconds."""
    found = []
    for _ in range(3):
        begun = time.perf_counter()
        sum(range(1_000_000))
        found.append((time.perf_counter() - begun) * 1_000)
    return statistics.median(found)
