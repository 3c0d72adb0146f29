"""What is checked after every case, whatever it did: the log, the job, the row and the counters say the same."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from leftfold.core.job import Job, fold, logged
from leftfold.core.lifecycle import SHAPE
from leftfold.core.record import GENESIS, Record, link, seal
from leftfold.store.replies import Summary
from leftfold.store.rows import records_of
from leftfold.testing.conformance.scene import Scene

#: Of a world with more jobs than this, `get` and `history` are asked for the oldest and the newest ones.
_ASKED: Final = 50


def audit(scene: Scene) -> None:
    """Compare everything that the store says with what its logs come to."""
    summaries = scene.everything()
    logs = _logs(scene.raw([summary.id for summary in summaries]))
    assert set(logs) == {summary.id for summary in summaries}, "each job has a log"
    for place, summary in enumerate(summaries):
        job = fold(logs[summary.id])
        assert job is not None
        assert _row_says(summary) == _log_says(job, summary)
        if place < _ASKED // 2 or place >= len(summaries) - _ASKED // 2:
            _check_asked(scene, summary, job, logs[summary.id])
    _check_counts(scene, summaries)
    verdict = scene.engine.verify(freeze=False)
    assert verdict.is_clean, f"the store itself says: {verdict.findings}"
    assert verdict.jobs == len(summaries)


def _logs(rows: Sequence[Sequence[Any]]) -> dict[str, list[Record]]:
    """Read the logs by themselves, without the code that the engine reads them with, and follow their chains."""
    logs = {}
    for job_id, job_rows in groupby(rows, key=lambda row: str(row[0])):
        log: list[Record] = []
        head = GENESIS
        for row in job_rows:
            records = records_of(job_id, row[7:])
            head = link(head, *records)
            assert bytes(row[-1]) == seal(head), f"record {records[0].version} of {job_id} breaks the chain"
            log += records
        assert bytes(row[1]) == head, f"the row of {job_id} does not know the end of its log"
        assert [record.version for record in log] == list(range(1, len(log) + 1)), "versions have no gaps"
        moments = [record.at for record in log]
        assert moments == sorted(moments), "time never falls within a job"
        logs[job_id] = log
    return logs


def _check_asked(scene: Scene, summary: Summary, folded: Job, log: Sequence[Record]) -> None:
    job = scene.engine.get(summary.id)
    assert scene.engine.history(summary.id) == log
    assert logged(job) == logged(folded), "a job is the fold of its log"
    assert job.rev == summary.rev
    held = job.lease or job.last_lease
    assert summary.until == (held.until if held else None)
    for field, required in SHAPE[job.state]._asdict().items():
        assert (getattr(job, field) is not None) is required, f"{field} of a job that is {job.state}"


def _row_says(summary: Summary) -> dict[str, object]:
    said = {name: getattr(summary, name) for name in Summary.__struct_fields__}
    return {
        name: value for name, value in said.items() if name not in {"rev", "until", "frozen"}
    }  # these are not on the log


def _log_says(job: Job, summary: Summary) -> dict[str, object]:
    beside: dict[str, object] = {
        "owner": job.lease.owner if job.lease else None,
        "deadline": job.wait.deadline if job.wait else None,
        "cancel_requested": job.cancel_requested_at is not None,
    }
    return {
        name: beside[name] if name in beside else getattr(job if hasattr(job, name) else job.spec, name)
        for name in _row_says(summary)
    }


def _check_counts(scene: Scene, summaries: Sequence[Summary]) -> None:
    counted = {(count.queue, count.kind, count.state): count.jobs for count in scene.engine.counts()}
    assert counted == Counter((each.queue, each.kind, each.state) for each in summaries)
    assert {each.queue for each in summaries} <= {queue.name for queue in scene.engine.queues()}
