"""A system in an empty place, with processes of its own."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import environments, handlers
from bench.servers import Place, Servers
from bench.system import OURS, About, load

BULK: Final = 1_000  # jobs in a batch
_LOOK_EVERY: Final = 0.005
_PATIENCE: Final = 30.0  # for the next job to begin
_FILL_SECONDS: Final = 900.0
_END_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 90.0  # beside what was asked to take its time


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
