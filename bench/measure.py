"""What is measured of a system, each time in an empty place with processes of its own."""

import statistics
import time
from typing import Final

import leftfold
from bench import processes
from bench.running import BULK, Bench, Failed
from leftfold.core.lifecycle import State

Figures = dict[str, float]


def enqueue(system: Bench, seconds: float) -> Figures:
    """Enqueue one by one, each durable before the next, for so long."""
    found = system.ask("enqueue", 1_000_000, seconds, seconds=seconds)
    return {"jobs/s": found["jobs"] / found["seconds"]}


def enqueue_many(system: Bench, seconds: float) -> Figures:
    """Enqueue in batches, for so long."""
    found = system.ask("fill", 1_000_000, BULK, seconds, seconds=seconds)
    return {"jobs/s": found["jobs"] / found["seconds"]}


def drain(system: Bench, jobs: int, handler: str, workers: int, concurrency: int | None = None) -> Figures:
    """Run what is there, with so many processes, from the first handler until all are found finished."""
    empty = system.place.bytes()
    system.fill(jobs)
    with system.watched(jobs) as watch:
        pids = [system.worker(handler, concurrency) for _ in range(workers)]
        system.wait_for(1)
        worker_cpu, server_cpu = sum(map(processes.seconds, pids)), processes.seconds(system.place.pid)
        system.wait_for(jobs)
        seconds = (watch.finished_at() - system.began()) / 1e9
        if missed := system.times(jobs).count(0):
            raise Failed(f"{system.about.title} ran some jobs twice, and {missed} of {jobs} never")
        found = {
            "jobs/s": jobs / seconds,
            "worker CPU s/1000": (sum(map(processes.seconds, pids)) - worker_cpu) / jobs * 1_000,
            "server CPU s/1000": (processes.seconds(system.place.pid) - server_cpu) / jobs * 1_000,
            "worker MB": sum(map(processes.memory, pids)) / workers / 1e6,
            "bytes/job": (system.place.bytes() - empty) / jobs,
        }
        if system.is_ours:
            check(system, jobs)
        return found


def latency(system: Bench, jobs: int, gap: float) -> Figures:
    """Enqueue now and then, while a worker has nothing else to do."""
    system.worker(system.about.plainest)
    system.latencies(20, gap)
    found = statistics.quantiles(system.latencies(jobs, gap), n=100, method="inclusive")
    return {"p50 ms": found[49], "p95 ms": found[94], "p99 ms": found[98]}


def growth(system: Bench, much: int) -> Figures:
    """Measure the same drain with so many jobs behind it; and again when all of them are done, and kept."""
    system.fill(much)
    system.worker(system.about.plainest)
    system.wait_for(SLICE)
    waiting = _pace(system.times(much), 0)
    with system.watched(much) as watch:
        system.wait_for(much)
        then = watch.finished_at()
    system.fill(SLICE)
    system.wait_for(much + SLICE)
    return {"jobs/s, waiting": waiting, "jobs/s, finished": _pace(system.times(SLICE), then)}


def verify(system: Bench) -> Figures:
    """Drain some jobs, then derive everything anew from the logs. Only for ours."""
    jobs = 2 * SLICE
    drain(system, jobs, system.about.plainest, 1)
    begun = time.perf_counter()
    check(system, jobs)
    return {"jobs/s": jobs / (time.perf_counter() - begun)}


def check(system: Bench, jobs: int) -> None:
    """Let a store of ours account for every job, and for every hash."""
    url = system.place.url if system.place.server == "postgres" else f"sqlite:///{system.place.url}/jobs.db"
    with leftfold.open(url) as engine:
        verdict = engine.verify()
        ended = sum(count.jobs for count in engine.counts() if count.state is State.SUCCEEDED)
    if verdict.findings or verdict.jobs != jobs or ended != jobs:
        raise Failed(f"{verdict.jobs} of {jobs} jobs are there, {ended} ended, and verify says {verdict.findings[:3]}")


#: How many jobs a pace is taken from, and how many before that are left out.
SLICE: Final = 10_000
_LEAD: Final = 1_000


def _pace(times: list[int], since: int) -> float:
    """Give how many began per second: of the first ones since then, without the very first."""
    found = sorted(each for each in times if each > since)[_LEAD:SLICE]
    return (len(found) - 1) / (found[-1] - found[0]) * 1e9


def leases(system: Bench, jobs: int, seconds: float) -> Figures:
    """Hold so many jobs at once, and do nothing else but keep them."""
    system.fill(jobs)
    pid = system.worker("long", jobs)
    system.wait_for(jobs)
    time.sleep(_SETTLE)
    worker, server = processes.seconds(pid), processes.seconds(system.place.pid)
    time.sleep(seconds)
    return {
        "worker CPU %": (processes.seconds(pid) - worker) / seconds * 100,
        "server CPU %": (processes.seconds(system.place.pid) - server) / seconds * 100,
        "worker MB": processes.memory(pid) / 1e6,
    }


_SETTLE: Final = 3.0
