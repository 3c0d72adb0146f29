"""Big tables in little time: a few real jobs, copied inside of the database as often as asked.

The copies are whole rows of jobs that the engine made, with ids, queues and keys of their own; so they satisfy every
constraint, whatever columns there are. Only the first event of each is copied with it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from leftfold import Engine

#: How many rows the tables have: LEFTFOLD_PLANS_ROWS=1000000 for the long form.
ROWS: Final = int(os.environ.get("LEFTFOLD_PLANS_ROWS", "30000"))

Execute = Callable[[str], object]
BUSY: Final = ("default", "mail", "reports")


class Part(NamedTuple):
    """Copies of one template: how many of all rows, and in which queues."""

    state: str
    share: float
    queues: Sequence[str] = BUSY


#: What is loaded, in which order; ANALYZE is taken at None. The rows are about the same in all of them, at the end.
FINISHED: Final = (Part("succeeded", 0.55), Part("dead_lettered", 0.02), Part("cancelled", 0.01))
OPEN: Final = (Part("queued", 0.38), Part("running", 0.02), Part("waiting", 0.01), Part("retrying", 0.01))
ONE_QUEUE: Final = tuple(part._replace(queues=("default",), share=part.share / 2) for part in (*FINISHED, *OPEN))
OTHER_QUEUES: Final = tuple(part._replace(queues=BUSY[1:], share=part.share / 2) for part in (*FINISHED, *OPEN))
STATISTICS: Final[Mapping[str, Sequence[Part | None]]] = {
    "never taken": (*FINISHED, *OPEN),
    "up to date": (*FINISHED, *OPEN, None),
    "taken when all had finished": (*FINISHED, None, *OPEN),
    "taken when all were queued": (*OPEN, None, *FINISHED),
    "taken when there was one queue": (*ONE_QUEUE, None, *OTHER_QUEUES),
}


def make_templates(engine: Engine) -> dict[str, str]:
    """Bring a job to each of the states, and give their ids."""
    made: dict[str, str] = {}
    for state in ("queued", "running", "retrying", "waiting", "succeeded", "dead_lettered", "cancelled"):
        made[state] = engine.enqueue("work", {"of": state}, queue="template", key=state).job_id
        if state in {"queued", "cancelled"}:
            continue
        (claim,) = engine.claim("worker", job_id=made[state])
        engine.start(claim)
        match state:
            case "retrying":
                engine.fail(claim, "oops")
            case "waiting":
                engine.suspend(claim, "go", deadline=60)
            case "succeeded":
                engine.complete(claim, {"done": True})
            case "dead_lettered":
                engine.fail(claim, "oops", permanent=True)
            case _:
                pass
    engine.cancel(made["cancelled"])
    return made


class Copies:
    """How a dialect spells the values of a copy: `n` is the number of the copy, `t` the template."""

    def __init__(self, own: Mapping[str, str], columns: Sequence[str]) -> None:
        self.columns = [column for column in columns if column not in {"n", "seq", "xid"}]  # the database fills these
        self._own = own

    def values(self) -> str:
        return ", ".join(self._own.get(column, f"t.{column}") for column in self.columns)

    def names(self) -> str:
        return ", ".join(self.columns)


def load(parts: Sequence[Part | None], copy: Callable[[Part, int, int], Any], analyze: Callable[[], Any]) -> int:
    """Copy part by part, and give how many rows that made."""
    first = 1
    for part in parts:
        if part is None:
            analyze()
        else:
            count = int(ROWS * part.share)
            copy(part, first, first + count - 1)
            first += count
    return first - 1
