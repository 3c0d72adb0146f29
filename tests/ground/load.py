"""A writer that never gives up: each request is asked until it is answered, and all answers are kept."""

import random
from collections.abc import Callable

from tests.concurrency.crowd import eventually
from tests.places import logs_of

from leftfold import Engine
from leftfold.core.errors import OutcomeUnknownError, StoreError, StoreUnavailableError


class Writer:
    """Makes jobs by request. What it was told stands in `told`, what it had to hear in `heard`."""

    def __init__(self, engine: Engine, name: str = "w", size: int = 1000) -> None:
        self.engine = engine
        self.told: dict[int, str] = {}
        self.heard: list[StoreError] = []
        self._name, self._size = name, size

    def write(self) -> str:
        """Make the next job, or raise why not."""
        number = len(self.told)
        asked = f"{self._name}-{number}"
        # The same when it is asked again, and nothing that a server could make smaller.
        text = random.Random(asked).randbytes(self._size // 2).hex()  # noqa: S311 - no secrets here
        receipt = self.engine.enqueue("work", {"by": asked, "text": text}, request_id=asked)
        self.told[number] = receipt.job_id
        return receipt.job_id

    def try_to_write(self) -> bool:
        """Make the next job if that can be done, and keep the error if not. Only errors that may pass are kept."""
        try:
            self.write()
        except (StoreUnavailableError, OutcomeUnknownError) as problem:
            self.heard.append(problem)
            return False
        return True

    def write_until(self, is_enough: Callable[[], bool]) -> None:
        """Go on, through all errors that pass."""
        while not is_enough():
            eventually(self.try_to_write)

    def write_until_it_fails(self, most: int = 10_000) -> StoreError:
        """Go on until there is an error, and give it."""
        for _ in range(most):
            if not self.try_to_write():
                return self.heard[-1]
        raise AssertionError("nothing ever failed")


def check_told(engine: Engine, *writers: Writer) -> None:
    """Demand that every job that somebody was told of is there, and no other, and that the store is consistent."""
    told = [job_id for writer in writers for job_id in writer.told.values()]
    assert len(set(told)) == len(told)
    assert set(logs_of(engine)) == set(told)
