"""What is measured of a system, each time in an empty place with processes of its own."""

import json
import os
import select
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import leftfold
from bench import environments, handlers, processes
from bench.servers import Place, Servers
from bench.system import OURS, About, load
from leftfold.core.lifecycle import State

BULK: Final = 1_000  # jobs in a batch
_LOOK_EVERY: Final = 0.005
_PATIENCE: Final = 30.0  # for the next job to begin
_FILL_SECONDS: Final = 900.0
_END_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 90.0  # beside what was asked to take its time

Figures = dict[str, float]


class Failed(Exception):  # noqa: N818 - told in the report, and the others go on
    """A system did not do what it was to do."""


class Bench:
    """The processes of one system in one place."""

    def __init__(self, name: str, about: About, place: Place, folder: Path, stack: ExitStack) -> None:
        self.about, self.place = about, place
        self._name, self._folder, self._stack = name, folder, stack
        self._python = environments.python(about)
        self._probes: list[memoryview] = []

    @property
    def is_ours(self) -> bool:
        """Whether the store can be verified."""
        return self._name in OURS

    def _start(self, *given: object, probe: Path | None = None) -> subprocess.Popen[str]:
        root = str(environments.ROOT)
        paths = os.pathsep.join([root, f"{root}/src"] if not self.about.needs else [root])
        with (self._folder / "errors").open("a") as errors:
            process = subprocess.Popen(  # noqa: S603 - our own words
                [self._python, "-m", "bench.side", self._name, *map(str, given)],
                env={**os.environ, "PYTHONPATH": paths, handlers.PROBE: str(probe or "")}, cwd=self._folder,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip
        self._stack.callback(self._end, process)
        return process

    def _end(self, process: subprocess.Popen[str]) -> None:
        """End a process and what it started: by a word, then by force."""
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
        for how in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is not None:
                break
            os.killpg(process.pid, how)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                continue

    def answer(self, process: subprocess.Popen[str], seconds: float = 0.0) -> dict[str, Any]:
        """Wait for what a process has to say, but not for ever."""
        if process.stdout is None or not select.select([process.stdout], [], [], seconds + _ANSWER_SECONDS)[0]:
            raise Failed(f"{self.about.title} did not answer: {self.errors()}")
        line = process.stdout.readline()
        if not line.startswith("{"):
            raise Failed(f"{self.about.title} ended: {self.errors()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def errors(self) -> str:
        """Give the last of what its processes complained of."""
        return (self._folder / "errors").read_text(errors="replace").strip()[-1_000:] or "without a word"

    def ask(self, verb: str, *given: object, seconds: float = 0.0) -> dict[str, Any]:
        """Let a process of the system do one thing, which takes so long."""
        process = self._start(verb, self.place.url, *given)
        answer = self.answer(process, seconds)
        with suppress(subprocess.TimeoutExpired):  # who does not end is ended
            process.wait(_END_SECONDS)
        return answer

    def fill(self, jobs: int) -> None:
        """Enqueue so many jobs, before what is measured."""
        made = self.ask("fill", jobs, BULK, _FILL_SECONDS, seconds=_FILL_SECONDS)["made"]
        if made < jobs:
            raise Failed(f"{self.about.title} enqueued {made} of {jobs} jobs in {_FILL_SECONDS:.0f} s")

    def worker(self, handler: str, concurrency: int | None = None) -> int:
        """Start a worker, and give its process id."""
        path = self._folder / f"probe-{len(self._probes)}"
        self._probes.append(handlers.probe(str(path)))
        return self._start("work", self.place.url, handler, concurrency or self.about.concurrency, probe=path).pid

    def ran(self) -> int:
        """Give how many jobs the workers began so far."""
        return sum(probe[0] for probe in self._probes)

    def wait_for(self, jobs: int) -> None:
        """Wait until the workers began so many."""
        ran, deadline = -1, 0.0
        while (now := self.ran()) < jobs:
            if now > ran:
                ran, deadline = now, time.monotonic() + _PATIENCE
            elif time.monotonic() > deadline:
                raise Failed(f"{self.about.title} ran {ran} of {jobs} jobs, and no more: {self.errors()}")
            time.sleep(_LOOK_EVERY)

    def began(self) -> int:
        """Give when the first job began."""
        return min(probe[1] for probe in self._probes if probe[0])

    def times(self, jobs: int) -> list[int]:
        """Give when each job began, by its number; 0 if it did not."""
        return [max(probe[handlers.HEAD + number] for probe in self._probes) for number in range(jobs)]

    def latencies(self, jobs: int, gap: float) -> list[float]:
        """Enqueue jobs one by one with pauses; give how long each took from there to its handler, in milliseconds."""
        path = self._folder / "asked"
        asked, ran = handlers.probe(str(path)), self.ran()
        self.ask("space", jobs, gap, path, seconds=jobs * gap)
        self.wait_for(ran + jobs)
        began = self.times(jobs)
        return [(began[number] - asked[handlers.HEAD + number]) / 1e6 for number in range(jobs)]

    @contextmanager
    def watched(self, jobs: int) -> Iterator["Watch"]:
        """Give somebody who tells when so many jobs were found finished."""
        process = self._start("watch", self.place.url, jobs)
        self.answer(process)
        yield Watch(self, process)


class Watch(NamedTuple):
    """A process that has loaded everything, and waits for a word to look whether all jobs are finished."""

    bench: Bench
    process: subprocess.Popen[str]

    def finished_at(self) -> int:
        """Give when all were found finished."""
        if self.process.stdin:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        return int(self.bench.answer(self.process)["at"])


@contextmanager
def bench(servers: Servers, name: str) -> Iterator[Bench]:
    """Give a system in an empty place."""
    about = load(name).ABOUT
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leftfold-bench-")))
        place = stack.enter_context(servers.fresh(about.server))
        made = Bench(name, about, place, folder, stack.enter_context(ExitStack()))
        made.ask("prepare")
        yield made


def gauge() -> float:
    """Give how long a little work takes now, in milliseconds: on a noisy machine it is not always the same."""
    found = []
    for _ in range(3):
        begun = time.perf_counter()
        sum(range(1_000_000))
        found.append((time.perf_counter() - begun) * 1_000)
    return statistics.median(found)


# --- the workloads ----------------------------------------------------------------------------------------------------


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
