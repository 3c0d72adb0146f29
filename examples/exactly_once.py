"""Many processes share one queue, and each job is claimed exactly once.

python examples/exactly_once.py                                   # 8 processes on a new file
python examples/exactly_once.py sqlite:///jobs.db                 # 8 processes on that file
python examples/exactly_once.py postgresql://user@host/database   # 64 processes; run `leftfold migrate` first
"""

# ruff: noqa: INP001, T201, TC003 - a script that talks

import multiprocessing
import sys
import tempfile
from collections import Counter
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from uuid import uuid4

import leftfold

JOBS = 500


def work(url: str, queue: str, name: str, start: Barrier, answers: "Queue[list[str]]") -> None:
    """Claim one job after the other until there is none left, and answer with the ids of those that were ours."""
    mine = []
    with leftfold.open(url) as jobs:
        start.wait(60)
        while claims := jobs.claim(name, queues=[queue]):
            (claim,) = claims
            jobs.start(claim)
            jobs.complete(claim, {"square": claim.payload["number"] ** 2})
            mine.append(claim.job_id)
    answers.put(mine)


def main(url: str, workers: int) -> int:
    """Enqueue, let everybody work at once, and compare what they claimed with what is on the log."""
    queue = f"exactly-once-{uuid4().hex[:8]}"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["leftfold"])
    start, answers = context.Barrier(workers), context.Queue()
    with leftfold.open(url) as jobs:
        ids = [jobs.enqueue("square", {"number": number}, queue=queue).job_id for number in range(JOBS)]
        crew = [context.Process(target=work, args=(url, queue, f"worker-{n}", start, answers)) for n in range(workers)]
        for process in crew:
            process.start()
        shares = [answers.get(timeout=120) for _ in crew]
        for process in crew:
            process.join()
        claims = Counter(job_id for share in shares for job_id in share)
        logs = [[record.event.wire for record in jobs.history(job_id)] for job_id in ids]
    once = claims == Counter(ids) and all(log == ["enqueued", "claimed", "started", "succeeded"] for log in logs)
    print(f"{JOBS} jobs, {workers} processes, {sum(map(bool, shares))} of them got work: ", end="")
    print("each job was claimed exactly once." if once else "SOMETHING IS WRONG.")
    return 0 if once else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(sys.argv[1], 8 if sys.argv[1].startswith("sqlite:") else 64))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(f"sqlite:///{folder}/jobs.db", 8))
