"""`leftfold lifecycle`: the tables, in every form; `leftfold lifecycle check`: the proof."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from leftfold.cli.text import ProgressLine, table
from leftfold.core import diagram, drawing
from leftfold.core.lifecycle import EDGES, TABLE, State
from leftfold.dialects import DIALECTS, describe
from leftfold.dialects.dialect import Dialect
from leftfold.proof.search import Found
from leftfold.proof.verdict import Verdict, prove
from leftfold.proof.world import Scope


@click.group(invoke_without_command=True)
@click.option("--dialect", "name", type=click.Choice(list(DIALECTS)), help="In the words of one specification.")
@click.option("--matrix", "forms", flag_value="matrix", multiple=True, help="Which event may happen in which state.")
@click.option(
    "--mermaid",
    "forms",
    flag_value="mermaid",
    multiple=True,
    help="As a Mermaid state diagram (of quality: its task machine).",
)
@click.option("--json", "forms", flag_value="json", multiple=True, help="As JSON.")
@click.option(
    "--svg", "file", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Draw it into FILE."
)
@click.pass_context
def lifecycle(context: click.Context, name: str | None, forms: tuple[str, ...], file: Path | None) -> None:
    """Show the life of a job: its states, what may happen in them, and who may say so.

    \b
    leftfold lifecycle                       a readable overview
    leftfold lifecycle --dialect formal      the same, as one specification sees it
    leftfold lifecycle --svg lifecycle.svg   a drawing
    leftfold lifecycle check                 search every world, and check every dialect
    """
    if context.invoked_subcommand is not None:
        if name or forms or file:
            raise click.UsageError(f"{context.invoked_subcommand} takes no options of `leftfold lifecycle`")
        return
    if len(forms) > 1:
        raise click.UsageError(f"choose one of --{' and --'.join(forms)}")
    form = forms[0] if forms else None
    dialect = DIALECTS[name] if name else None
    if file is not None:
        _draw(file, describe.svg(dialect) if dialect else drawing.svg())
        if form is None:
            return
    if form == "json":
        described = describe.describe(dialect) if dialect else diagram.describe()
        click.echo(json.dumps(described, indent=2, ensure_ascii=False))
    elif dialect is not None:
        click.echo("\n".join(_dialect_lines(dialect, form)))
    else:
        click.echo("\n".join(_lifecycle_lines(form)))


def _draw(file: Path, svg: str) -> None:
    try:
        file.write_text(svg, encoding="utf-8")
    except OSError as problem:
        raise click.FileError(str(file), problem.strerror) from problem
    click.echo(f"drawn into {file}", err=True)


def _lifecycle_lines(form: str | None) -> list[str]:
    if form == "mermaid":
        return [diagram.mermaid()]
    if form == "matrix":
        return table(*_narrow(*diagram.matrix()))
    count = f"{len(State)} states, {len({rule.event for rule in TABLE})} events, {len(EDGES)} moves"
    return [
        f"The life of a job: {count}. Present in a state: ●, absent: ·",
        "",
        *table(*diagram.shapes()),
        "",
        *_rule_lines(),
        "",
        click.wrap_text(f"Notes, which change no state: {', '.join(diagram.describe()['notes'])}"),
        "",
        "Look further: --matrix, --mermaid, --svg FILE, --json, --dialect NAME, check.",
    ]


def _rule_lines() -> list[str]:
    """Give the transition table, without its last column where a terminal is too narrow for it."""
    head, rows = diagram.rules()
    lines = table(head, rows)
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < max(map(len, lines)):
        return table(head[:-1], [row[:-1] for row in rows])
    return lines


def _narrow(head: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Shorten the names of the states in the head, so that the matrix fits a terminal."""
    return [*head[:2], *(name.strip("()")[:4] for name in head[2:-1]), head[-1]], rows


def _dialect_lines(dialect: Dialect, form: str | None) -> list[str]:
    if form == "mermaid":
        return [describe.mermaid(dialect)]
    described = describe.describe(dialect)
    machines = {"": described} if "table" in described else {name: described[name] for name in ("task", "run")}
    lines = [f"{dialect.name}: {dialect.summary} (seed {dialect.seed})"]
    for title, machine in machines.items():
        lines += ["", *([title, ""] if title else []), *_table_lines(machine)]
        if form != "matrix":
            lines += ["", *_extension_lines(machine)]
    if form != "matrix":
        lines += ["", *table(["ours", "here", ""], _name_rows(dialect))]
    return lines


def _table_lines(machine: dict[str, Any]) -> list[str]:
    """Give the seed's own table: state by event where it has both, else as the list it is."""
    rows = machine["table"]
    if not all(isinstance(cell, dict) for cell in rows.values()):
        return table(["", "leads to"], [[row, ", ".join(cell) or "—"] for row, cell in rows.items()])
    events = [event for event in machine["events"] + machine["ours"] if any(event in cell for cell in rows.values())]
    return table(["", *events], [[row, *(cell.get(event, "—") for event in events)] for row, cell in rows.items()])


def _extension_lines(machine: dict[str, Any]) -> list[str]:
    head = ["extension", "basis", "reason"]
    rows = [
        [f"{each['from']} -{each['event'] or 'silent'}-> {each['to']}", each["basis"], each["reason"]]
        for each in machine["extensions"]
    ]
    lines = table(head, list(dict.fromkeys(map(tuple, rows))))
    for each in machine["unreached"]:
        source = each["from"] or "any"
        lines.append(f"never taken: {source} -{each['event']}-> {each['to']}: {each['reason']}")
    return lines


def _name_rows(dialect: Dialect) -> list[list[str]]:
    return [[state.value, dialect.names[state], "stand-in" if state in dialect.stand_ins else ""] for state in State]


@lifecycle.command()
@click.option("--jobs", type=click.IntRange(1, 9), help="Search a scope of your own: so many jobs, …")
@click.option("--workers", type=click.IntRange(1, 9), help="… so many workers, …")
@click.option("--attempts", type=click.IntRange(1, 9), help="… and so many attempts, which is also the retry budget.")
@click.option("--json", "as_json", is_flag=True, help="Give the findings as JSON.")
@click.pass_context
def check(
    context: click.Context, jobs: int | None, workers: int | None, attempts: int | None, *, as_json: bool
) -> None:
    """Search every world that a scope allows, with the engine's own code, and check every dialect.

    Without options two scopes are searched, in a minute or two. Exit code 1 means that something is wrong; the
    shortest way there is printed.
    """
    scope = Scope(jobs or 1, workers or 1, attempts or 1) if jobs or workers or attempts else None
    line = ProgressLine()
    if not as_json:
        click.echo("Every world of a scope, breadth first, through the engine's own decide and evolve:")
    verdict = prove(scope, lambda report: line.show(f"  {_counts(report)}, {report.waiting} still to be searched"))
    line.clear()
    if as_json:
        click.echo(json.dumps(verdict.describe(), indent=2))
    else:
        click.echo("\n".join(_verdict_lines(verdict)))
    context.exit(1 if verdict.violations else 0)


def _counts(found: Found) -> str:
    return f"{found.scope!s:<34} {found.states:>8} states {found.transitions:>9} transitions {found.seconds:>7.1f} s"


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    ok, wrong = click.style("ok", fg="green"), click.style("VIOLATED", fg="red", bold=True)
    for found in verdict.found:
        yield f"  {_counts(found)}  {wrong if found.violation else ok}"
    if verdict.untaken:
        yield f"moves of the table that no job made: {', '.join(verdict.untaken)}"
    yield "Every dialect against its seed's own table:"
    for name, problems in verdict.dialects.items():
        declared = len(describe.extensions(DIALECTS[name]) + describe.run_extensions(DIALECTS[name]))
        yield f"  {name:<14} {declared:>3} declared extensions  {wrong if problems else ok}"
        yield from (f"    {problem}" for problem in problems)
    for found in verdict.found:
        if found.violation is not None:
            yield click.style(f"\n{found.scope}: {found.violation.problem}", fg="red")
            yield "the shortest path to it:"
            yield from (f"  {number}. {step}" for number, step in enumerate(found.violation.path, start=1))
    yield f"total: {verdict.states} states, {verdict.transitions} transitions, {verdict.violations} violations"
