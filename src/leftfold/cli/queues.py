"""`leftfold queues`: list them, pause and resume them."""

import time

import click

from leftfold.cli.shapes import Shape, queue_shape
from leftfold.cli.showing import styled
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import ago, clean, table, terminal_width
from leftfold.core import limits
from leftfold.core.lifecycle import State


@click.group()
def queues() -> None:
    """List queues, pause and resume them."""


@queues.command("list")
@with_store
@with_json
def list_queues(place: Place, *, as_json: bool) -> None:
    """List the queues, with how many of their jobs are in which state."""
    with opened(place) as engine:
        counts = engine.counts()
        found = [queue_shape(queue, counts) for queue in engine.queues()]
    if as_json:
        for queue in found:
            emit(queue)
    elif found:
        click.echo("\n".join(_lines(found)))
    else:
        click.echo("no queues", err=True)


def _lines(found: list[Shape]) -> list[str]:
    """Give a column per state; where a terminal has no room for that, the states in words."""
    states = [state for state in State if any(queue["jobs"][state] for queue in found)]
    pauses = [_pause(queue, time.time_ns() // 1000) for queue in found]
    rows = [
        [queue["name"], *(str(queue["jobs"][state] or "·") for state in states), pause]
        for queue, pause in zip(found, pauses, strict=True)
    ]
    lines = table(["queue", *(styled(state) for state in states), ""], rows)
    width = terminal_width()
    if width is None or max(len(click.unstyle(line)) for line in lines) <= width:
        return lines
    words = [[queue["name"], pause, _words(queue)] for queue, pause in zip(found, pauses, strict=True)]
    return table(["queue", "", "jobs"], words)


def _words(queue: Shape) -> str:
    return ", ".join(f"{jobs} {styled(state)}" for state, jobs in queue["jobs"].items() if jobs)


def _pause(queue: Shape, now: int) -> str:
    if queue["paused_at"] is None:
        return ""
    reason = f": {clean(queue['reason'])}" if queue["reason"] else ""
    return click.style(f"paused {ago(queue['paused_at'], now)} by {clean(queue['paused_by'])}{reason}", fg="yellow")


@queues.command()
@click.argument("name")
@click.option("--reason", metavar="TEXT", help="Why; `queues list` shows it.")
@with_actor
@with_store
@with_json
def pause(place: Place, name: str, reason: str | None, actor: str | None, *, as_json: bool) -> None:
    """Let nobody claim from a queue. What is claimed already goes on, and jobs may be enqueued."""
    limits.name("queue", name)
    limits.text("reason", reason)
    with opened(place, actor=actor) as engine:
        changed = engine.pause(name, reason=reason)
    _tell(name, "is paused", "was paused already", paused=True, changed=changed, as_json=as_json)


@queues.command()
@click.argument("name")
@with_actor
@with_store
@with_json
def resume(place: Place, name: str, actor: str | None, *, as_json: bool) -> None:
    """Let a queue go on."""
    limits.name("queue", name)
    with opened(place, actor=actor) as engine:
        changed = engine.unpause(name)
    _tell(name, "goes on", "was not paused", paused=False, changed=changed, as_json=as_json)


def _tell(name: str, done: str, before: str, *, paused: bool, changed: bool, as_json: bool) -> None:
    if as_json:
        emit({"name": name, "paused": paused, "changed": changed})
    else:
        click.echo(f"{name} {done if changed else before}")
