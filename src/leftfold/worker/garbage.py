"""Garbage, collected less often: a worker makes thousands of objects a second, and parts with each of them by itself.

The collector looks for those that hold each other, and to find none it looks at all of a batch again and again: a
quarter of a worker's time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: How many objects more there must be before it looks; Python's own number is 700, or 2000.
_OBJECTS: Final = 20_000
_YOUNG, _OLD = 20, 50


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the collector look less often, and never at what was there before. Whoever set it otherwise knows better."""
    before = gc.get_threshold()
    if not 0 < before[0] < _OBJECTS:
        yield
        return
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, _YOUNG, _OLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:  # else somebody else froze something, and it stays so
            gc.unfreeze()


def collect_young() -> None:
    """Look now at what was made since the last look: errors hold their frames, and these hold whatever was large."""
    gc.collect(0)
