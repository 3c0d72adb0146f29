"""`leftfold feed`: read every committed event, as one of any number of consumers."""

import time
from collections.abc import Iterator
from typing import Final, Literal

import click
import msgspec

from leftfold.cli import shapes
from leftfold.cli.showing import event_lines
from leftfold.cli.store import Place, emit, opened, with_json, with_store
from leftfold.cli.text import ago, table
from leftfold.core import limits
from leftfold.engine import Engine
from leftfold.engine.feeding import PAGE
from leftfold.store.feed import BEHIND_MAX, Consumer, FeedPage

_EVERY: Final = 1.0  # seconds between two looks of a consumer that has everything


@click.group()
def feed() -> None:
    """Read every committed event, as one of any number of consumers.

    A consumer gets each event at least once, those of a job in their order, and goes on where it stopped.
    """


@feed.command("list")
@with_store
@with_json
def list_consumers(place: Place, *, as_json: bool) -> None:
    """List the consumers, and how far behind they are.

    \b
    leftfold feed list --json | jq 'select(.behind > 1000).name'
    """
    with opened(place) as engine:
        found = engine.consumers()
    if as_json:
        for consumer in found:
            emit(shapes.spelled_out(consumer))
    elif found:
        now = time.time_ns() // 1000
        rows = [[each.name, _behind(each), _ago(each.oldest_at, now), ago(each.moved_at, now)] for each in found]
        click.echo("\n".join(table(["consumer", "behind", "oldest", "moved"], rows)))
    else:
        click.echo("no consumers", err=True)


def _behind(consumer: Consumer) -> str:
    many = f"{consumer.behind:,}{'+' * (consumer.behind >= BEHIND_MAX)}"
    return click.style(many, fg="yellow") if consumer.behind else many


def _ago(moment: int | None, now: int) -> str:
    return "" if moment is None else ago(moment, now)


@feed.command()
@click.argument("consumer")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most so many.  [default: all up to now]")
@click.option("--follow", "-f", is_flag=True, help="Wait for more until interrupted.")
@click.option(
    "--start",
    type=click.Choice(["beginning", "now"]),
    default="beginning",
    show_default=True,
    help="Where a new consumer begins.",
)
@with_store
@with_json
def read(
    place: Place, consumer: str, *, limit: int | None, follow: bool, start: Literal["beginning", "now"], as_json: bool
) -> None:
    """Give the events that a consumer has not had, oldest first, and move it behind them.

    It moves when they are written: who is interrupted gets the last page again.

    \b
    leftfold feed read archive --json >> events.jsonl
    leftfold feed read pager --follow --start now
    """
    limits.name("consumer", consumer)
    with opened(place) as engine:
        for page in _pages(engine, consumer, limit, start, follow=follow):
            _write(page, as_json=as_json)
            if not page.stands_still:
                engine.acknowledge(page)


def _pages(
    engine: Engine, consumer: str, limit: int | None, start: Literal["beginning", "now"], *, follow: bool
) -> Iterator[FeedPage]:
    left = limit
    while left is None or left > 0:
        page = engine.feed(consumer, limit=PAGE if left is None else min(left, PAGE), start=start)
        yield page
        start = "beginning"  # it is known by now
        left = None if left is None else left - len(page.records)
        if page.caught_up:
            if not follow:
                return
            time.sleep(_EVERY)


def _write(page: FeedPage, *, as_json: bool) -> None:
    """Write a page as a whole: `echo` flushes, so that what is acknowledged has left our hands."""
    if page.records and as_json:
        click.echo(b"\n".join(_spelled(shapes.record_shape(record)) for record in page.records))
    elif page.records:
        click.echo("\n".join(event_lines(page.records)))
    for finding in page.unreadable:
        click.echo(f"Warning: job {finding.job_id}: {finding.detail}: it is passed over", err=True)


def _spelled(shape: shapes.Shape) -> bytes:
    return msgspec.json.format(msgspec.json.encode(shape), indent=-1)


@feed.command()
@click.argument("consumer")
@with_store
@with_json
def forget(place: Place, consumer: str, *, as_json: bool) -> None:
    """Forget a consumer; one of the same name starts anew.

    \b
    leftfold feed forget archive
    """
    limits.name("consumer", consumer)
    with opened(place) as engine:
        known = engine.forget_consumer(consumer)
    if as_json:
        emit({"name": consumer, "forgotten": known})
    else:
        click.echo(f"{consumer} is forgotten" if known else f"{consumer} was not known")
