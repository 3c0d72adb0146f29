"""`until_idle`: a worker ends when there is nothing left that anybody will do by himself."""

from leftfold import App
from leftfold.store.query import Operation, Steps, ids


def freeze(job_id: str) -> Steps[None]:
    yield ids("freeze", [job_id])


def test_until_idle_does_not_wait_for_what_is_paused(file_app: App) -> None:
    @file_app.job(max_failures=9, retry_delay=0, retry_delay_max=0)
    def flaky() -> None:
        file_app.engine.pause("default", reason="broken")
        raise ValueError("again")

    handle = flaky.enqueue()
    file_app.run_worker(until_idle=True)
    assert handle.get().state == "retrying"


def test_until_idle_does_not_wait_for_what_is_frozen(file_app: App) -> None:
    @file_app.job(max_failures=9, retry_delay=3600)
    def flaky() -> None:
        raise ValueError("again")

    handle = flaky.enqueue()
    (claim,) = file_app.engine.claim("another", start=True)
    file_app.engine.fail(claim, "oops")
    file_app.engine.store.run(Operation(lambda: freeze(handle.id)))
    file_app.run_worker(until_idle=True)
    assert handle.get().state == "retrying"
