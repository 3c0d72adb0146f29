"""A system in an empty place, with processes of its own."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import environments, handlers
from bench.servers import Place, Servers
from bench.side import WARM
from bench.system import OURS, About, load

BULK: Final = 1_000  # jobs in a batch
_LOOK_EVERY: Final = 0.005
_PATIENCE: Final = 30.0  # for the next job to begin
_FILL_SECONDS: Final = 900.0
_END_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 90.0  # beside what was asked to take its time
_LEAST: Final = 0.25  # of the jobs: what is counted of less is no figure


class Failed(Exception):  # noqa: N818 - told in the report, and the others go on
    """A system did not do what it was to do."""


class Bench:
    """The processes of one system in one place."""

    def __init__(self, name: str, about: About, place: Place, folder: Path, stack: ExitStack) -> None:
        self.about, self.place = about, place
        self.folder, self._name, self._stack = folder, name, stack
        self._python = environments.python(about)
        self.probes: list[memoryview] = []
        self.verifies = True  # else there is no time for it: a short run does so in its last round only

    @property
    def is_ours(self) -> bool:
        """Whether the store can be verified."""
        return self._name in OURS

    def _start(self, *given: object, probe: Path | None = None, answers: bool = True) -> subprocess.Popen[str]:
        root = str(environments.ROOT)
        paths = os.pathsep.join([root, f"{root}/src"] if not self.about.needs else [root])
        with (self.folder / "errors").open("a") as errors:
            process = subprocess.Popen(  # noqa: S603 - our own words
                [self._python, "-m", "bench.side", self._name, *map(str, given)],
                env={**os.environ, "PYTHONPATH": paths, handlers.PROBE: str(probe or "")}, cwd=self.folder,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE if answers else errors, stderr=errors, text=True,
                start_new_session=True,
            )  # fmt: skip
        self._stack.callback(self.end, process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
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
        return (self.folder / "errors").read_text(errors="replace").strip()[-1_000:] or "without a word"

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
        self.place.analyze()

    def worker(self, handler: str, concurrency: int | None = None) -> subprocess.Popen[str]:
        """Start a worker."""
        path = self.folder / f"probe-{len(self.probes)}"
        self.probes.append(handlers.probe(str(path)))
        given = (handler, concurrency or self.about.concurrency)
        return self._start("work", self.place.url, *given, probe=path, answers=False)  # nobody reads what it prints

    def ran(self) -> int:
        """Give how many jobs the workers began so far."""
        return sum(probe[0] for probe in self.probes)

    def wait_for(self, jobs: int) -> None:
        """Wait until the workers began so many."""
        self._wait(lambda: self.ran() >= jobs, f"{jobs} jobs")

    def wait_for_all_workers(self) -> None:
        """Wait until each worker began a job."""
        self._wait(lambda: all(probe[0] for probe in self.probes), "a job in each process")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait for something for as long as jobs begin."""
        ran, deadline = -1, 0.0
        while not done():
            if (now := self.ran()) > ran:
                ran, deadline = now, time.monotonic() + _PATIENCE
            elif time.monotonic() > deadline:
                raise Failed(f"{self.about.title} began {ran} jobs, and no more, but not {what}: {self.errors()}")
            time.sleep(_LOOK_EVERY)

    def times(self, jobs: int, worker: slice = slice(None)) -> list[int]:
        """Give when each job began in these workers, by its number; 0 if it did not."""
        probes = [probe[handlers.HEAD : handlers.HEAD + jobs].tolist() for probe in self.probes[worker]]
        return list(map(max, zip(*probes, strict=True)))

    def window(self, jobs: int) -> "Window":
        """Give what came behind the first job of the last worker. Fails if a job ran twice, or never."""
        times, ran = self.times(jobs), self.ran()
        distinct = jobs - times.count(0)
        if ran != jobs or distinct != jobs:
            raise Failed(f"{self.about.title} began {distinct} of {jobs} jobs, and {ran - distinct} of them once more")
        return Window.of(times, [probe[1] for probe in self.probes])

    def latencies(self, jobs: int, gap: float) -> list[float]:
        """Enqueue jobs one by one with pauses; give how long each took from there to its handler, in milliseconds.

        The first few, which connect and prepare, are left out.
        """
        path = self.folder / "asked"
        asked, every = handlers.probe(str(path)), WARM + jobs
        self.ask("space", every, gap, path, seconds=every * gap)
        self.wait_for(every)
        began = self.times(every)
        return [(began[number] - asked[handlers.HEAD + number]) / 1e6 for number in range(WARM, every)]

    @contextmanager
    def watched(self, jobs: int) -> Iterator["Watch"]:
        """Give somebody who tells when so many jobs were found finished."""
        process = self._start("watch", self.place.url, jobs)
        self.answer(process)
        yield Watch(self, process)


class Window(NamedTuple):
    """The time in which all workers were there: jobs that began before it are not counted."""

    began: int
    jobs: int

    @classmethod
    def of(cls, times: Sequence[int], firsts: Sequence[int]) -> "Window":
        """Give it by when each job began, and when each worker began its first one."""
        if not all(firsts):
            raise Failed(f"{firsts.count(0)} of {len(firsts)} processes never began a job")
        began = max(firsts)
        jobs = sum(time >= began for time in times)
        if jobs < len(times) * _LEAST:
            raise Failed(f"only {jobs} of {len(times)} jobs were left when the last of {len(firsts)} processes began")
        return cls(began, jobs)


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
def bench(servers: Servers, name: str, *, verifies: bool) -> Iterator[Bench]:
    """Give a system in an empty place."""
    about = load(name).ABOUT
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leftfold-bench-")))
        place = stack.enter_context(servers.fresh(about.server))
        made = Bench(name, about, place, folder, stack.enter_context(ExitStack()))
        made.verifies = verifies
        made.ask("prepare")
        yield made
