"""The results of a run as `docs/benchmarks.md`, with its plots and its data: `python -m bench.docs RESULTS.json`."""

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import report
from bench.plots import Bar, bars
from bench.system import load
from bench.verdict import Measured, values
from bench.workloads import workloads

DOCS: Final = Path(__file__).parent.parent / "docs"
#: What is drawn: workload and figure, and how the file is called.
DRAWN: Final = (
    ("drain", "jobs/s", "drain"),
    ("drain2", "jobs/s", "drain2"),
    ("sync", "jobs/s", "sync"),
    ("enqueue", "jobs/s", "enqueue"),
    ("bulk", "jobs/s", "bulk"),
    ("latency", "p50 ms", "latency"),
    ("mix", "jobs/s", "mix"),
    ("drain", "worker CPU s/1000", "cpu"),
    ("memory", "worker MB", "memory"),
)
_GROUPS: Final = {
    "postgres": "on PostgreSQL",
    "files": "in a file of SQLite",
    "redis": "on Redis, which may lose a second",
}
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


def _look(system: str) -> str:
    about = load(system).ABOUT
    if about.role == "peer":
        return "weak" if about.server == "redis" else "peer"
    return "ours" if about.role == "ours" else "limit"


class Plot(NamedTuple):
    """A drawing, and what is to be read where it cannot be seen."""

    title: str
    svg: str


def plots(results: dict[str, Any]) -> dict[str, Plot]:
    """Give the plots by the names of their files."""
    measured, found = report.measured_in(results), {}
    titles = {each.name: each.title for each in workloads(results["much"])}
    for workload, figure, name in DRAWN:
        if given := _bars(measured, workload, figure, results):
            title = titles[workload][0].upper() + titles[workload][1:]
            drawn = bars(title, figure, given, less_is_better=not figure.startswith("jobs/s"))
            found[f"benchmark-{name}.svg"] = Plot(f"{title}: {figure}", drawn)
    return found


def _bars(measured: list[Measured], workload: str, figure: str, results: dict[str, Any]) -> list[Bar]:
    found = [
        Bar(results["systems"][system]["title"], statistics.median(rounds), _look(system), group, tuple(rounds))
        for server, group in _GROUPS.items()
        for system in results["systems"]
        if load(system).ABOUT.server == server and (rounds := values(measured, system, workload, figure))
    ]
    return found if len({bar.group for bar in found}) > 1 else [bar._replace(group="") for bar in found]


def page(text: str, results: dict[str, Any]) -> str:
    """Put the figures of a run into the page, between its marks."""
    drawn = "\n\n".join(f"![{plot.title}](img/{name})" for name, plot in plots(results).items())
    figures = f"{_BEGIN}\n\n{drawn}\n\n{report.tables(results)}\n{_END}"
    return re.sub(f"{_BEGIN}.*{_END}", lambda _: figures, text, flags=re.DOTALL)


def main() -> None:
    """Write the page and its plots."""
    parser = argparse.ArgumentParser(prog="python -m bench.docs", description=__doc__)
    parser.add_argument("results", type=Path, help="what `python -m bench --out` wrote")
    text = parser.parse_args().results.read_text(encoding="utf-8")
    (DOCS / "benchmarks.json").write_text(text, encoding="utf-8")
    results = json.loads(text)
    for name, plot in plots(results).items():
        (DOCS / "img" / name).write_text(plot.svg, encoding="utf-8")
    path = DOCS / "benchmarks.md"
    path.write_text(page(path.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
