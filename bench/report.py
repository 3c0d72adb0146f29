"""What a run found, as tables: the verdicts, every workload, and what each system promises."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bench.system import load
from bench.verdict import Measured, Verdict, rounds_of, verdicts
from bench.workloads import workloads

_WORDS: Final = {
    "stretch": "met, and the stretch",
    "met": "met",
    "missed": "**missed**",
    "not judged": "**not judged**",
}


def measured_in(results: dict[str, Any]) -> list[Measured]:
    """Read what was measured from a file's contents."""
    return [Measured(**each) for each in results["measured"]]


def tables(results: dict[str, Any]) -> str:
    """Give everything as Markdown."""
    measured = measured_in(results)
    parts = ["### Targets", targets(verdicts(measured, results.get("rounds") or rounds_of(measured)), results)]
    for workload in workloads(results["much"]):
        found = [each for each in measured if each.workload == workload.name]
        if found:
            parts += [f"### {workload.title[0].upper()}{workload.title[1:]}", _workload(found, results)]
    parts += ["### What each system keeps", promises(results), conditions(results)]
    return "\n\n".join(parts) + "\n"


def targets(found: Iterable[Verdict], results: dict[str, Any]) -> str:
    """Give the table of the verdicts."""
    rows = [
        (
            each.target.title,
            _against(each, results),
            f"{each.ratio:.2f}" if each.ratios else "",
            f"{min(each.ratios):.2f}–{max(each.ratios):.2f}" if each.ratios else "",
            f"{'≥' if each.target.is_rate else '≤'} {each.target.bound:g}",
            f"{each.target.stretch:g}",
            _WORDS[each.word] + (f": {each.why}" if each.why else ""),
        )
        for each in found
    ]
    return table(("", "against", "ratio", "rounds", "target", "stretch", ""), rows, right={2, 3, 4, 5})


def _against(verdict: Verdict, results: dict[str, Any]) -> str:
    others = [verdict.against] if verdict.against else [system for system, _ in verdict.target.sides[1:]]
    return " or ".join("itself" if each == verdict.target.system else _title(results, each) for each in others)


def _title(results: dict[str, Any], system: str) -> str:
    return str(results["systems"][system]["title"]) if system in results["systems"] else load(system).ABOUT.title


def _workload(found: Sequence[Measured], results: dict[str, Any]) -> str:
    figures = list(dict.fromkeys(name for each in found for name in each.figures))
    rows = []
    for system in results["systems"]:
        own = [each for each in found if each.system == system]
        if not own:
            continue
        cells = [_range([each.figures[figure] for each in own if figure in each.figures]) for figure in figures]
        failed = next((each.failed for each in own if each.failed), "")
        gauge = f"{statistics.median(each.gauge for each in own):.1f}"
        disk = f"{statistics.median(each.disk for each in own):.2f}"
        rows.append((_title(results, system), *cells, gauge, disk, failed))
    notes = any(row[-1] for row in rows)
    head = ("", *figures, "gauge ms", "disk ms", "failed")
    if not notes:
        head, rows = head[:-1], [row[:-1] for row in rows]
    return table(head, rows, right=set(range(1, len(figures) + 3)))


def _range(values: Sequence[float]) -> str:
    """Give the median, and the smallest and the largest if there are several."""
    if not values:
        return ""
    text = _number(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def promises(results: dict[str, Any]) -> str:
    """Give what each system keeps, by its own documentation, and how it was set up."""
    rows = [
        (about["title"], ", ".join([" ".join(about["needs"]) or "this tree", *about.get("versions", [])]),
         about["settings"], about["durability"], about["history"], about["recovery"])
        for about in results["systems"].values()
    ]  # fmt: skip
    return table(("", "version", "settings", "durability", "history", "recovery"), rows)


def conditions(results: dict[str, Any]) -> str:
    """Give what the figures were taken on, and what was left out."""
    lines = [", ".join(f"{name}: {value}" for name, value in {**results["machine"], **results["servers"]}.items())]
    for server, settings in results["settings"].items():
        lines.append(f"{server}: " + ", ".join(f"`{name} = {value or 'none'}`" for name, value in settings.items()))
    lines += [f"Left out: {_title(results, name)}, {why}" for name, why in results["left out"].items()]
    if skipped := results.get("skipped"):
        lines.append(f"Not measured, for the time was up: {', '.join(skipped)}")
    return "\n\n".join(lines)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Give a table."""
    right = set(right)
    rule = ["---:" if place in right else "---" for place in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def summary(found: Sequence[Verdict], failed: Sequence[Measured], left_out: Mapping[str, str]) -> str:
    """Say in some lines whether the targets are met, and name those that are not; and who failed altogether."""
    lines = [f"{sum(each.is_met for each in found)} of {len(found)} targets are met."]
    lines += [f"Not judged: {each.target.title}, {each.target.figure}: {each.why}" for each in found if each.why]
    lines += [f"Left out: {system}: {why}" for system, why in left_out.items()]
    lines += [f"Failed: {each.system}, {each.workload}, round {each.round + 1}: {each.failed}" for each in failed]
    lines += [
        f"Missed: {each.target.title} is {each.ratio:.2f} of {each.against}, asked {each.target.bound:g}"
        for each in found
        if each.word == "missed"
    ]
    return "\n".join(lines) + "\n"
