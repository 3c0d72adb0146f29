"""What is measured of a system, each time in an empty place with processes of its own."""

import statistics
import time
from typing import Final

import leftfold
from bench import processes
from bench.running import BULK, Bench, Failed
from bench.side import WARM
from leftfold.core.lifecycle import State

Figures = dict[str, float]


def enqueue(system: Bench, seconds: float) -> Figures:
    """Enqueue one by one, each durable before the next, for so long."""
    found = system.ask("enqueue", 1_000_000, seconds, seconds=seconds)
    check(system, found["made"], State.QUEUED)
    return {"jobs/s": found["jobs"] / found["seconds"]}


def enqueue_many(system: Bench, seconds: float) -> Figures:
    """Enqueue in batches, for so long."""
    found = system.ask("fill", 1_000_000, BULK, seconds, seconds=seconds)
    check(system, found["made"], State.QUEUED)
    return {"jobs/s": found["jobs"] / found["seconds"]}


def drain(system: Bench, jobs: int, handler: str, workers: int, concurrency: int | None = None) -> Figures:
    """Run what is there, with so many processes, from when all of them run jobs until all jobs are found finished."""
    empty = system.place.bytes()
    system.fill(jobs)
    with system.watched(jobs) as watch:
        pids = [system.worker(handler, concurrency).pid for _ in range(workers)]
        system.wait_for_all_workers()
        worker_cpu, server_cpu = sum(map(processes.seconds, pids)), processes.seconds(system.place.pid)
        before = system.ran()
        system.wait_for(jobs)
        ended = watch.finished_at()
        window = system.window(jobs)
        left = max(jobs - before, 1)
        found = {
            "jobs/s": window.jobs / (ended - window.began) * 1e9,
            "worker CPU s/1000": (sum(map(processes.seconds, pids)) - worker_cpu) / left * 1_000,
            "server CPU s/1000": (processes.seconds(system.place.pid) - server_cpu) / left * 1_000,
            "worker MB": sum(map(processes.memory, pids)) / workers / 1e6,
            system.place.kept: (system.place.bytes() - empty) / jobs,
        }
        check(system, jobs)
        return found


def latency(system: Bench, jobs: int, gap: float) -> Figures:
    """Enqueue now and then, while a worker has nothing else to do."""
    with system.watched(WARM + jobs) as watch:
        system.worker(system.about.plainest)
        found = statistics.quantiles(system.latencies(jobs, gap), n=100, method="inclusive")
        watch.finished_at()
    check(system, WARM + jobs)
    return {"p50 ms": found[49], "p95 ms": found[94], "p99 ms": found[98]}


def growth(system: Bench, much: int) -> Figures:
    """Measure the same drain with so many jobs behind it; and again when all of them are done, and kept."""
    system.fill(much)
    with system.watched(much) as watch:
        first = system.worker(system.about.plainest)
        system.wait_for(much)
        watch.finished_at()
    waiting = _pace(system.times(much))
    system.end(first)  # else the next jobs would be run while they are enqueued
    system.fill(SLICE)
    with system.watched(much + SLICE) as watch:
        system.worker(system.about.plainest)
        system.wait_for(much + SLICE)
        watch.finished_at()
    finished = _pace(system.times(SLICE, slice(1, None)))
    check(system, much + SLICE)
    return {"jobs/s, waiting": waiting, "jobs/s, finished": finished}


def verify(system: Bench) -> Figures:
    """Drain some jobs, then derive everything anew from the logs. Only for ours."""
    jobs = 2 * SLICE
    drain(system, jobs, system.about.plainest, 1)
    begun = time.perf_counter()
    check(system, jobs)
    return {"jobs/s": jobs / (time.perf_counter() - begun)}


def check(system: Bench, jobs: int, state: State = State.SUCCEEDED) -> None:
    """Let a store of ours account for every job, and for every hash; those of others cannot."""
    if not (system.is_ours and system.verifies):
        return
    url = system.place.url if system.place.server == "postgres" else f"sqlite:///{system.place.url}/jobs.db"
    with leftfold.open(url) as engine:
        verdict = engine.verify()
        there = sum(count.jobs for count in engine.counts() if count.state is state)
    if verdict.findings or verdict.jobs != jobs or there != jobs:
        told = f"{verdict.jobs} of {jobs} jobs are there, {there} are {state.value}"
        raise Failed(f"{told}, and verify says {verdict.findings[:3]}")


#: How many jobs a pace is taken from, and how many before that are left out.
SLICE: Final = 10_000
_LEAD: Final = 1_000


def _pace(times: list[int]) -> float:
    """Give how many began per second: of the first ones, without the very first."""
    found = sorted(filter(None, times))[_LEAD:SLICE]
    return (len(found) - 1) / (found[-1] - found[0]) * 1e9


def leases(system: Bench, jobs: int, seconds: float) -> Figures:
    """Hold so many jobs at once, and do nothing else but keep them."""
    system.fill(jobs)
    pid = system.worker("long", jobs).pid
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
