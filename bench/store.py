"""Our stores against the same rows written as bare SQL, in one run: `python -m bench.store` or `make bench-store`.

Both sides run in turns of a few batches, each round on fresh tables; the verdict is the median of the ratios of
neighbours: a noisy machine is noisy for both. PostgreSQL runs with fsync and synchronous_commit on, SQLite with
synchronous=FULL. Exits with 1 if a target is missed, and names it.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

import leftfold
from bench.bare import Bare, BarePostgres, BareSqlite
from leftfold import Engine, NewJob
from leftfold.store.sqlite.library import sqlite
from leftfold.testing.postgres import running

Work = Callable[[Bare, int, int], None]

BATCH: Final = 100
TURN: Final = 5  # batches
#: What issue-level targets ask of us, as ratios; sizes in bytes per finished job of four events.
TARGETS: Final = {
    "enqueue_many": 0.60, "claim+start+complete": 0.50, "enqueue": 0.80, "claim at a million": 1 / 1.25,
    "claim under an old snapshot": 0.80,
}  # fmt: skip
BYTES: Final = {"postgres": 1100, "sqlite": 500}


class Ours:
    """The engine, with the same five verbs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def enqueue(self, payloads: list[Any]) -> None:
        if len(payloads) == 1:
            self.engine.enqueue("noop", payloads[0])
        else:
            self.engine.enqueue_many([NewJob("noop", each) for each in payloads])

    def claim(self, limit: int) -> list[Any]:
        return self.engine.claim("worker-1", limit=limit)

    def take(self, limit: int) -> list[Any]:
        return self.engine.claim("worker-1", limit=limit, start=True)

    def start(self, claims: list[Any]) -> None:
        self.engine.start_many(claims)

    def complete(self, claims: list[Any]) -> None:
        self.engine.complete_many([(claim, None) for claim in claims])

    def close(self) -> None:
        self.engine.close()


def seconds(work: Callable[[], object]) -> float:
    """Give how long something takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def fill(side: Bare, jobs: int, batch: int = BATCH) -> None:
    """Enqueue so many jobs."""
    for _ in range(jobs // batch):
        side.enqueue([{"n": number} for number in range(batch)])


def claimed(side: Bare, batch: int) -> list[Any]:
    """Claim a batch, which is there."""
    claims = side.claim(batch)
    if len(claims) != batch:
        raise RuntimeError(f"{len(claims)} of {batch} were claimed")
    return claims


def drain(side: Bare, jobs: int, batch: int = BATCH) -> None:
    """Claim, start and complete so many."""
    for _ in range(jobs // batch):
        claims = claimed(side, batch)
        side.start(claims)
        side.complete(claims)


class Turns(NamedTuple):
    """What both sides took for the same work, turn by turn, in jobs per second."""

    ours: list[float]
    bare: list[float]

    def verdict(self) -> dict[str, float]:
        """Give the medians of the rates, and of the ratios of neighbours: those had the same machine."""
        return {
            "ratio": statistics.median(a / b for a, b in zip(self.ours, self.bare, strict=True)),
            "ours": statistics.median(self.ours),
            "bare": statistics.median(self.bare),
        }


def take_turns(turns: Turns, ours: Bare, bare: Bare, work: Work, *, jobs: int, batch: int) -> None:
    """Let both sides do the same work, some batches each at a time."""
    size = TURN * batch
    for turn in range(jobs // size):
        sides = [(ours, turns.ours), (bare, turns.bare)]
        for side, rates in sides if turn % 2 else reversed(sides):
            rates.append(size / seconds(partial(work, side, size, batch)))


class Place:
    """Where tables can be made."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.name = name
        self.url = url
        self._folder = folder
        self._made = 0

    def fresh(self) -> tuple[str, str]:
        """Give the URL and the schema of empty tables."""
        self._made += 1
        schema = f"bench_{self._made}"
        url = self.url or f"sqlite:///{self._folder / schema}.db"
        leftfold.migrate(url, schema=schema)
        return url, schema

    def ours(self) -> Ours:
        """Give our side, on empty tables."""
        url, schema = self.fresh()
        return Ours(leftfold.open(url, schema=schema, actor="client"))

    def bare(self) -> Bare:
        """Give the other side, on empty tables."""
        url, schema = self.fresh()
        if self.url:
            return BarePostgres(url, schema)
        path = url.removeprefix("sqlite:///")
        BareSqlite.prepare(path)
        return BareSqlite(path)


@contextmanager
def places(wanted: Sequence[str]) -> Iterator[list[Place]]:
    """Give the stores to measure; PostgreSQL as it is run for people, on a server of our own."""
    with tempfile.TemporaryDirectory() as folder:
        if "postgres" not in wanted:
            yield [Place("sqlite", "", Path(folder))]
            return
        with running(durable=True, settings={"shared_buffers": "256MB", "max_wal_size": "2GB"}) as server:
            found = [Place("postgres", server.url(), Path(folder)), Place("sqlite", "", Path(folder))]
            yield [place for place in found if place.name in wanted]


def compare(place: Place, rounds: int, jobs: int) -> dict[str, dict[str, float]]:
    """Run both sides in turns, each round on fresh tables."""
    many, drained, single = (Turns([], []) for _ in range(3))
    for number in range(rounds):
        with closing(place.ours()) as ours, closing(place.bare()) as bare:
            for side in (ours, bare):
                fill(side, 5 * BATCH)
                drain(side, 5 * BATCH)  # plans, caches
            take_turns(many, ours, bare, fill, jobs=jobs, batch=BATCH)
            take_turns(drained, ours, bare, drain, jobs=jobs, batch=BATCH)
            take_turns(single, ours, bare, fill, jobs=max(jobs // 5, 50), batch=1)
        tell(f"{place.name}: round {number + 1} of {rounds}")
    return {
        "enqueue_many": many.verdict(),
        "claim+start+complete": drained.verdict(),
        "enqueue": single.verdict(),
    }


# --- growth, an old snapshot, bytes -----------------------------------------------------------------------------------

_GROW: Final = """
INSERT INTO {jobs} (id, created_at, updated_at, due, ended_at, result, version, renewals, attempt, failures, enqueued,
                    state, priority, head, tenant, kind, queue)
SELECT {id}, 1, 1, CASE WHEN n % 2 = 0 THEN {now} END, CASE WHEN n % 2 = 1 THEN 1 END, CASE WHEN n % 2 = 1 THEN 4 END,
       CASE WHEN n % 2 = 0 THEN 1 ELSE 4 END, 0, 0, 0, 1, {state}, 0, {head}, '', 'noop', 'default'
FROM {numbers}
"""
_LOGS: Final = """
INSERT INTO {events} ({job}, version, at, format, event, actor, data, seal)
SELECT j.{own}, v.n, 1, 1, {name}, {name}, '{{}}', {seal} FROM {jobs} j, {versions} WHERE j.ended_at IS NOT NULL
"""


def grow(place: Place, url: str, schema: str, jobs: int) -> None:
    """Put jobs behind those that are measured: half of them queued in the same lane, half finished, with their logs."""
    now = time.time_ns() // 1000
    state = "CASE WHEN n % 2 = 0 THEN 'queued' ELSE 'succeeded' END"
    if place.url:
        with psycopg.connect(url, autocommit=True) as connection:
            tables = {"jobs": f"{schema}.jobs", "events": f"{schema}.events"}
            id_ = "('01000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
            grown = _GROW.format(
                **tables, id=id_, now=now, head="'\\x00'", numbers=f"generate_series(1, {jobs}) n",
                state=f"({state})::{schema}.state",
            )  # fmt: skip
            logs = _LOGS.format(
                **tables, job="job_id", own="id", name="'x'", seal="'\\x00'", versions="generate_series(1, 4) v (n)"
            )
            for statement in (grown, logs, f"VACUUM ANALYZE {schema}.jobs, {schema}.events", "CHECKPOINT"):
                connection.execute(statement.encode())
    else:
        connection = sqlite.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.create_function("id_of", 1, lambda n: b"\x01" + n.to_bytes(15))
        tables = {"jobs": "leftfold_jobs", "events": "leftfold_events"}
        numbers = f"(WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {jobs}) SELECT n FROM c)"
        connection.execute(_GROW.format(
            **tables, id="id_of(n)", now=now, head="x'00'", numbers=numbers, state=state
        ))  # fmt: skip
        versions = "(SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) v"
        connection.execute(_LOGS.format(**tables, job="job", own="n", name="1", seal="x'00'", versions=versions))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else the first claim gives back what all this took
        connection.close()


def among(place: Place, jobs: int, backlog: int) -> Ours:
    """Give our side with some jobs to claim, and so many behind them."""
    url, schema = place.fresh()
    side = Ours(leftfold.open(url, schema=schema, actor="client"))
    fill(side, jobs)
    grow(place, url, schema, backlog)
    return side


def take(side: Bare, jobs: int, batch: int = BATCH) -> None:
    """Claim so many."""
    for _ in range(jobs // batch):
        claimed(side, batch)


def growth(place: Place, rounds: int, jobs: int, much: int) -> dict[str, float]:
    """Give what a claim costs among many jobs, against among few."""
    turns = Turns([], [])
    for number in range(rounds):
        with closing(among(place, jobs, much)) as many, closing(among(place, jobs, 10_000)) as few:
            take(many, BATCH)  # plans, caches
            take(few, BATCH)
            take_turns(turns, many, few, take, jobs=jobs - BATCH, batch=BATCH)
        tell(f"{place.name}: growth, round {number + 1} of {rounds}")
    return turns.verdict()


def old_snapshot(place: Place, rounds: int, jobs: int) -> dict[str, float]:
    """Give the rate of a drain while somebody else holds an old snapshot, against that without one.

    Not in turns: it is old for every table of the database.
    """
    pairs = []
    for number in range(rounds):
        rates = []
        for held in (True, False) if number % 2 else (False, True):
            url, schema = place.fresh()
            with closing(Ours(leftfold.open(url, schema=schema, actor="client"))) as side:
                fill(side, jobs)
                with psycopg.connect(url) as other:
                    if held:
                        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                        other.execute(f"SELECT count(*) FROM {schema}.jobs".encode())
                    rates.append((held, jobs / seconds(lambda: drain(side, jobs))))
        pairs.append((dict(rates)[True], dict(rates)[False]))
        tell(f"{place.name}: old snapshot, round {number + 1} of {rounds}")
    return {
        "ratio": statistics.median(held / free for held, free in pairs),
        "ours": statistics.median(held for held, _ in pairs),
        "bare": statistics.median(free for _, free in pairs),
    }


def bytes_per_job(place: Place, jobs: int) -> dict[str, float]:
    """Give what a finished job takes, where jobs are finished as they come, and where all were enqueued first."""
    found = {}
    for name, backlog in (("as they come", 1_000), ("all enqueued first", jobs)):
        url, schema = place.fresh()
        with closing(Ours(leftfold.open(url, schema=schema, actor="client"))) as side:
            for done in range(0, jobs, backlog):
                fill(side, backlog)
                drain(side, backlog)
                if place.url and done % 5_000 == 0:  # what autovacuum does in a longer time
                    vacuum(url, schema)
        found[name] = size(place, url, schema) / jobs
    return found


def vacuum(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"VACUUM {schema}.jobs, {schema}.events, {schema}.counts".encode())


def size(place: Place, url: str, schema: str) -> int:
    """Give the bytes of all tables and indexes."""
    if not place.url:
        return Path(url.removeprefix("sqlite:///")).stat().st_size
    vacuum(url, schema)
    with psycopg.connect(url) as connection:
        ((total,),) = connection.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
            (schema,),
        ).fetchall()
    return int(total)


# --- the report -------------------------------------------------------------------------------------------------------


def tell(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()


def report(results: dict[str, Any]) -> str:
    """Give the figures as a table."""
    lines = ["| store | what | ours | bare | ratio | target | |", "| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    for store, found in results.items():
        for name, figures in found["ratios"].items():
            target = TARGETS[name]
            met = "ok" if figures["ratio"] >= target else "**missed**"
            lines.append(
                f"| {store} | {name} | {figures['ours']:,.0f}/s | {figures['bare']:,.0f}/s "
                f"| {figures['ratio']:.2f} | {target:.2f} | {met} |"
            )
        for name, figure in found["bytes"].items():
            met = "" if name != "as they come" else "ok" if figure <= BYTES[store] else "**missed**"
            asked = f"{BYTES[store]}" if name == "as they come" else ""
            lines.append(f"| {store} | bytes per finished job, {name} | {figure:,.0f} | | | {asked} | {met} |")
    return "\n".join(lines) + "\n"


def missed(results: dict[str, Any]) -> list[str]:
    """Name the targets that do not hold."""
    found = []
    for store, part in results.items():
        for name, figures in part["ratios"].items():
            if figures["ratio"] < TARGETS[name]:
                found.append(f"{store}, {name} is {figures['ratio']:.2f}, asked {TARGETS[name]:.2f}")
        if (size_ := part["bytes"].get("as they come", 0)) > BYTES[store]:
            found.append(f"{store}, bytes per finished job are {size_:,.0f}, asked {BYTES[store]}")
    return found


def main() -> int:
    """Measure, report, judge."""
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    parser.add_argument("--store", choices=["postgres", "sqlite"], action="append", help="one of them only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=5_000, help="per round and side")
    parser.add_argument("--much", type=int, default=2_000_000, help="how many jobs stand beside those of `growth`")
    parser.add_argument("--only", choices=["ratios", "growth", "snapshot", "bytes"], action="append")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    parts = asked.only or ["ratios", "growth", "snapshot", "bytes"]
    results: dict[str, Any] = {}
    with places(asked.store or ["postgres", "sqlite"]) as found:
        for place in found:
            ratios: dict[str, Any] = compare(place, asked.rounds, asked.jobs) if "ratios" in parts else {}
            if "growth" in parts:
                ratios["claim at a million"] = growth(place, min(asked.rounds, 3), asked.jobs, asked.much)
            if "snapshot" in parts and place.url:
                ratios["claim under an old snapshot"] = old_snapshot(place, min(asked.rounds, 3), 4 * asked.jobs)
            sizes = bytes_per_job(place, 20_000) if "bytes" in parts else {}
            results[place.name] = {"ratios": ratios, "bytes": sizes}
    sys.stderr.write("\r\x1b[K" if sys.stderr.isatty() else "")
    sys.stdout.write(json.dumps(results, indent=2) + "\n" if asked.json else report(results))
    failing = missed(results)
    sys.stderr.writelines(f"Missed: {each}\n" for each in failing)
    return int(bool(failing))


if __name__ == "__main__":
    sys.exit(main())
