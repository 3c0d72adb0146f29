"""How the machine is just now: on a noisy one, a little work does not always take the same time."""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

_WRITES: Final = 50
_PAGE: Final = bytes(4096)


def processor() -> float:
    """Give how long a little work takes now, in milliseconds."""
    found = []
    for _ in range(3):
        begun = time.perf_counter()
        sum(range(1_000_000))
        found.append((time.perf_counter() - begun) * 1_000)
    return statistics.median(found)


def disk(folder: Path) -> float:
    """Give how long the disk takes to keep a page, in milliseconds."""
    found = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_WRITES):
            begun = time.perf_counter()
            os.write(file.fileno(), _PAGE)
            os.fdatasync(file.fileno())
            found.append((time.perf_counter() - begun) * 1_000)
    return statistics.median(found)
