"""Leftfold and its peers, side by side on one machine in one run: `python -m bench`, or `make bench`.

Each figure is taken in an empty place with processes of its own. Rounds take turns: every system does its part of a
workload before the next one begins, in another order each round. The verdict on each target is the median of the
ratios of the rounds. Exits with 1 if a target is missed, or could not be judged.
"""

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench import environments, gauges, machine, report, running
from bench.plan import Pace, Step, steps
from bench.servers import POSTGRES, REDIS, Servers
from bench.system import OURS, load, names
from bench.verdict import Measured, verdicts
from bench.workloads import FEW, Workload, workloads

#: When the short run has to come to its end: the last step, and the tables, still take their time.
_MINUTES: Final = 14.0


class Run:
    """One run: what was asked for, and what was found so far."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._much = 1_000_000 if asked.all else 200_000
        self._rounds: int | None = asked.rounds
        self._out: Path | None = asked.out
        self._systems = asked.system or (names() if asked.all else list(FEW))
        self._all: bool = asked.all or bool(asked.system)
        self._minutes: float | None = asked.minutes or (None if self._all else _MINUTES)
        self._workloads = [each for each in workloads(self._much) if not asked.only or each.name in asked.only]
        self.measured: list[Measured] = []
        self.left_out: dict[str, str] = {}
        self._skipped: list[str] = []
        self._versions: dict[str, list[str]] = {}
        self._begun = time.monotonic()
        self._pace = Pace()

    @property
    def rounds(self) -> dict[str, int]:
        """Give how many rounds of each workload are asked for."""
        return {each.name: self._rounds_of(each) for each in self._workloads}

    def go(self, servers: Servers) -> None:
        """Measure everything."""
        for name in self._systems:
            self._install(name)
        self._begun = time.monotonic()  # what is installed for the first time is no part of the quarter of an hour
        plan = steps(self._workloads, self._rounds_of, self._systems_of, whole=self._all)
        self._keep(servers)  # what an older run left there is none of this one
        for place, step in enumerate(plan):
            self._tell(step, place, plan)
            if not step.is_judged and self._is_late(step):
                self._skipped.append(f"{step.workload.title}: {load(step.system).ABOUT.title}")
                continue
            begun = time.monotonic()
            self.measured.append(self._measure(servers, step))
            self._pace.note(step, time.monotonic() - begun)
            self._keep(servers)  # a long run that is cut short has not been in vain

    def _is_late(self, step: Step) -> bool:
        passed = time.monotonic() - self._begun
        return self._minutes is not None and passed + self._pace.expect(step) > self._minutes * 60

    def _keep(self, servers: Servers) -> None:
        if self._out:
            new = self._out.with_name(f"{self._out.name}.new")
            new.write_text(json.dumps(self.results(servers), indent=1) + "\n", encoding="utf-8")
            new.replace(self._out)

    def _install(self, name: str) -> None:
        about = load(name).ABOUT
        _show(f"setting up {about.title}")
        try:
            self._versions[name] = environments.versions(about)
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

    def _measure(self, servers: Servers, step: Step) -> Measured:
        """Take a figure. A peer that fails may try once more; if we fail, we failed."""
        found = self._measured(servers, step)
        if found.failed and step.system not in OURS:
            found = self._measured(servers, step)
        return found

    def _measured(self, servers: Servers, step: Step) -> Measured:
        workload, number, name = step
        gauge, disk = gauges.processor(), gauges.disk(servers.folder)
        try:
            verifies = self._all or number + 1 == self._rounds_of(workload) or not step.is_judged
            with running.bench(servers, name, verifies=verifies) as system:
                return Measured(name, workload.name, number, gauge, workload.measure(system), disk=disk)
        except Exception as problem:  # noqa: BLE001 - whatever a system may come up with, the others go on
            _say(f"{workload.title}: {problem!r}")
            # The rest is for whoever sits at this machine.
            told = str(problem).partition(":")[0] if isinstance(problem, running.Failed) else type(problem).__name__
            return Measured(name, workload.name, number, gauge, {}, told, disk)

    def _tell(self, step: Step, place: int, plan: list[Step]) -> None:
        passed = time.monotonic() - self._begun
        left = sum(map(self._pace.expect, plan[place:]))
        about = f", about {left / 60:.0f} min left" if place else ""
        what = f"round {step.round + 1}, {step.workload.title}: {load(step.system).ABOUT.title}"
        _show(f"[{place}/{len(plan)}, {passed / 60:.0f} min{about}] {what}")

    def results(self, servers: Servers) -> dict[str, Any]:
        """Give everything that was found, for a file."""
        return {
            "machine": machine.about(),
            "servers": servers.versions(),
            "much": self._much,
            "settings": {"PostgreSQL": POSTGRES, "Redis": REDIS},
            "rounds": self.rounds,
            "left out": self.left_out,
            "skipped": self._skipped,
            "systems": {
                name: {
                    "title": about.title,
                    "needs": about.needs,
                    "server": about.server,
                    "role": about.role,
                    "versions": self._versions.get(name, []),
                    "settings": about.settings,
                    **about.promises._asdict(),
                }
                for name in self._systems
                for about in [load(name).ABOUT]
            },
            "measured": [each._asdict() for each in self.measured],
        }


def _show(line: str) -> None:
    sys.stderr.write(f"\r\x1b[K{line}" if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}\n" if sys.stderr.isatty() else f"{text}\n")


def main() -> int:
    """Measure, report, judge."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every system, every workload, growth to a million jobs")
    parser.add_argument("--system", action="append", choices=names(), help="this one only; may be repeated")
    parser.add_argument("--only", action="append", choices=[each.name for each in workloads(0)], help="this workload")
    parser.add_argument("--rounds", type=int, help="at most so many")
    parser.add_argument("--minutes", type=float, help="what no target is about is left out when so many are over")
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
    found = verdicts(run.measured, run.rounds)
    failed = [each for each in run.measured if each.failed]
    sys.stderr.write(report.summary(found, failed, run.left_out))
    return int(any(each.system in OURS for each in failed) or not all(each.is_met for each in found))


if __name__ == "__main__":
    sys.exit(main())
