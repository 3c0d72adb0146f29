"""Leftfold and its peers, side by side on one machine in one run: `python -m bench`, or `make bench`.

Each figure is taken in an empty place with processes of its own. Rounds take turns: every system does its part of a
workload before the next one begins, in another order each round. The verdict on each target is the median of the
ratios of the rounds. Exits with 1 if a target is missed.
"""

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import environments, gauges, machine, report, running
from bench.servers import POSTGRES, REDIS, Servers
from bench.system import OURS, load, names
from bench.verdict import TARGETS, Measured, verdicts
from bench.workloads import FEW, Workload, workloads


class Run:
    """One run: what was asked for, and what was found so far."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._much = 1_000_000 if asked.all else 200_000
        self._rounds: int | None = asked.rounds
        self._out: Path | None = asked.out
        self._systems = asked.system or (names() if asked.all else list(FEW))
        self._all: bool = asked.all or bool(asked.system)
        self._workloads = [each for each in workloads(self._much) if not asked.only or each.name in asked.only]
        self.measured: list[Measured] = []
        self.left_out: dict[str, str] = {}
        self._begun = time.monotonic()
        self._done = 0

    def go(self, servers: Servers) -> None:
        """Measure everything."""
        for name in self._systems:
            self._install(name)
        plan = [
            (workload, number, name)
            for number in range(max(self._rounds_of(each) for each in self._workloads))
            for workload in self._workloads
            if number < self._rounds_of(workload)
            for name in rotated(self._systems_of(workload), number)
        ]
        self._keep(servers)  # what an older run left there is none of this one
        for workload, number, name in plan:
            self._tell(f"round {number + 1}, {workload.title}: {load(name).ABOUT.title}", len(plan))
            self._measure(servers, workload, number, name)
            self._done += 1
            self._keep(servers)  # a long run that is cut short has not been in vain

    def _keep(self, servers: Servers) -> None:
        if self._out:
            new = self._out.with_name(f"{self._out.name}.new")
            new.write_text(json.dumps(self.results(servers), indent=1) + "\n", encoding="utf-8")
            new.replace(self._out)

    def _install(self, name: str) -> None:
        about = load(name).ABOUT
        self._tell(f"setting up {about.title}", 0)
        try:
            environments.python(about)
            if about.server == "redis":
                environments.redis_server()
        except environments.Missing as problem:
            self.left_out[name] = str(problem)
            _say(f"{about.title} is left out: {problem}")

    def _rounds_of(self, workload: Workload) -> int:
        return workload.rounds if self._rounds is None else min(self._rounds, workload.rounds)

    def _systems_of(self, workload: Workload) -> list[str]:
        return [
            name
            for name in self._systems
            if name not in self.left_out and (self._all or name in workload.few)
            if workload.handler is None or workload.handler in load(name).ABOUT.handlers
            if workload.only is None or name in workload.only
        ]

    def _measure(self, servers: Servers, workload: Workload, number: int, name: str) -> None:
        gauge = gauges.processor()
        try:
            with running.bench(servers, name) as system:
                figures = workload.measure(system)
                self.measured.append(Measured(name, workload.name, number, gauge, figures))
        except (running.Failed, OSError, ValueError) as problem:  # whatever a peer may come up with
            told = str(problem).partition(":")[0]  # the rest is for whoever sits at this machine
            self.measured.append(Measured(name, workload.name, number, gauge, {}, told))
            _say(f"{workload.title}: {problem}")

    def _tell(self, text: str, of: int) -> None:
        share = f"{self._done}/{of}, " if of else ""
        passed = time.monotonic() - self._begun
        line = f"[{share}{passed / 60:.0f} min] {text}"
        sys.stderr.write(f"\r\x1b[K{line}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()

    def results(self, servers: Servers) -> dict[str, Any]:
        """Give everything that was found, for a file."""
        return {
            "machine": machine.about(),
            "servers": servers.versions(),
            "much": self._much,
            "settings": {"PostgreSQL": POSTGRES, "Redis": REDIS},
            "left out": self.left_out,
            "systems": {
                name: {
                    "title": about.title,
                    "needs": about.needs,
                    "settings": about.settings,
                    **about.promises._asdict(),
                }
                for name in self._systems
                for about in [load(name).ABOUT]
            },
            "measured": [each._asdict() for each in self.measured],
        }


def rotated(systems: list[str], number: int) -> list[str]:
    """Give them in another order each round, so that nobody always comes first."""
    start = number % len(systems) if systems else 0
    return systems[start:] + systems[:start]


def _say(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}\n" if sys.stderr.isatty() else f"{text}\n")


def main() -> int:
    """Measure, report, judge."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every system, every workload, growth to a million jobs")
    parser.add_argument("--system", action="append", choices=names(), help="this one only; may be repeated")
    parser.add_argument("--only", action="append", choices=[each.name for each in workloads(0)], help="this workload")
    parser.add_argument("--rounds", type=int, help="at most so many")
    parser.add_argument("--out", type=Path, help="a file for everything that was found, as JSON")
    parser.add_argument("--json", action="store_true", help="print that instead of the tables")
    asked = parser.parse_args()
    run = Run(asked)
    with ExitStack() as stack:
        servers = Servers(stack)
        run.go(servers)
        results = run.results(servers)
    sys.stderr.write("\r\x1b[K" if sys.stderr.isatty() else "")
    sys.stdout.write(json.dumps(results, indent=1) + "\n" if asked.json else report.tables(results))
    found = verdicts(run.measured)
    failed = [each for each in run.measured if each.failed and each.system in OURS]
    sys.stderr.write(report.summary(found, failed))
    return int(bool(failed) or len(found) < len(TARGETS) or any(each.word == "missed" for each in found))


if __name__ == "__main__":
    sys.exit(main())
