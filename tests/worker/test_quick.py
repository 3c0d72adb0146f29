"""A worker in this process, until there is nothing left to do: what an attempt may come to."""

from pathlib import Path

import pytest

from leftfold import App, JobFailed, current_job


@pytest.fixture
def app(tmp_path: Path) -> App:
    """An app on a file of its own."""
    return App(f"sqlite:///{tmp_path / 'jobs.db'}")


def test_async_and_plain_handlers_are_equal(app: App) -> None:
    @app.job
    async def double(n: int) -> int:
        return 2 * n

    @app.job
    def triple(n: int) -> int:
        return 3 * n

    doubled = app.enqueue_many(double.call(n) for n in range(20))
    tripled = triple.enqueue(7)
    app.run_worker(until_idle=True)
    assert [each.result(timeout=0) for each in doubled] == [2 * n for n in range(20)]
    assert tripled.result(timeout=0) == 21
    assert app.engine.verify().total == 0


def test_what_fails_is_tried_again_and_set_aside_at_last(app: App) -> None:
    @app.job(max_failures=3, retry_delay=0.01)
    def flaky(fails: int) -> int:
        if current_job().attempt <= fails:
            raise ValueError("not yet")
        return current_job().attempt

    good, bad = flaky.enqueue(2), flaky.enqueue(9)
    app.run_worker(until_idle=True)
    assert good.result(timeout=0) == 3
    with pytest.raises(JobFailed, match="dead_lettered: ValueError: not yet"):
        bad.result(timeout=0)
    assert [record.event.wire for record in bad.history()][-3:] == ["claimed", "started", "dead_lettered"]
