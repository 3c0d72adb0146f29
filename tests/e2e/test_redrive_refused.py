"""Redrives that nobody could mean, or do, are refused and leave no trace."""

from typing import Any

import pytest
from tests.e2e.test_redrive import engine, set_aside

from leftfold import redrive
from leftfold.core.errors import IllegalTransitionError, LimitExceededError, ValidationError
from leftfold.core.lifecycle import State
from leftfold.engine import Engine
from leftfold.redrive import KIND, QUEUE, Wish

__all__ = ["engine"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"reason": " "}, ValidationError),
        ({"kind": "a b"}, ValidationError),
        ({"incident": "xyz"}, ValidationError),
        ({"rate": 0.0}, ValidationError),
        ({"rate": float("nan")}, ValidationError),
        ({"rate": 1e9}, ValidationError),
        ({"canaries": -1}, LimitExceededError),
        ({"canaries": 101}, LimitExceededError),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(engine: Engine, wrong: dict[str, Any], error: type[Exception]) -> None:
    set_aside(engine)
    before = engine.list().jobs
    with pytest.raises(error):
        redrive.begin(engine, Wish(**{"reason": "x", **wrong}))
    assert engine.list().jobs == before


def test_a_job_that_is_no_redrive_is_not_gone_on_with(engine: Engine) -> None:
    job_id = engine.enqueue("pay").job_id
    with pytest.raises(IllegalTransitionError, match="it is no redrive"):
        next(redrive.go_on(engine, job_id))


@pytest.mark.parametrize("payload", [{"no": 1}, {"reason": "x", "rate": 0}, {"reason": "x", "canaries": "many"}])
def test_a_redrive_that_nobody_could_do_is_refused_and_left_alone(engine: Engine, payload: object) -> None:
    job_id = engine.enqueue(KIND, payload, queue=QUEUE).job_id
    with pytest.raises(ValidationError):
        next(redrive.go_on(engine, job_id))
    assert engine.get(job_id).state is State.QUEUED
