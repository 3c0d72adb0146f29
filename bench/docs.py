"""The results of a run as `docs/benchmarks.md`, with its plots and its data: `python -m bench.docs RESULTS.json`."""

import argparse
import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import report
from bench.plots import Bar, bars
from bench.verdict import Measured, median
from bench.workloads import workloads

DOCS: Final = Path(__file__).parent.parent / "docs"
#: The workloads that are drawn, by the figure that counts.
DRAWN: Final = ("drain", "drain2", "enqueue", "bulk", "latency", "mix")
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


def _look(system: str) -> str:
    return "ours" if system.startswith("leftfold") else "limit" if system.startswith("bare") else "peer"


class Plot(NamedTuple):
    """A drawing, and what is to be read where it cannot be seen."""

    title: str
    svg: str


def plots(results: dict[str, Any]) -> dict[str, Plot]:
    """Give the plots by the names of their files."""
    measured, found = report.measured_in(results), {}
    for workload in workloads(results["much"]):
        if workload.name in DRAWN and (given := _bars(measured, workload.name, workload.figure, results)):
            less = not workload.figure.startswith("jobs/s")
            title = workload.title[0].upper() + workload.title[1:]
            drawn = bars(title, workload.figure, given, less_is_better=less)
            found[f"benchmark-{workload.name}.svg"] = Plot(title, drawn)
    return found


def _bars(measured: list[Measured], workload: str, figure: str, results: dict[str, Any]) -> list[Bar]:
    return [
        Bar(about["title"], value, _look(system))
        for system, about in results["systems"].items()
        if (value := median(measured, system, workload, figure)) is not None
    ]


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
