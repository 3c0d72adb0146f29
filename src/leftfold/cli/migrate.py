"""`leftfold migrate`: make a store, or bring it to the schema of this version."""

from collections.abc import Iterator

import click

from leftfold import opening
from leftfold.cli.store import Place, check_place, emit, with_json, with_store
from leftfold.opening import address_of, masked
from leftfold.store.migrate import Migration


@click.command()
@click.option("--dump-sql", is_flag=True, help="Print the SQL instead, for those who apply it by hand.")
@click.option("--dialect", type=click.Choice(["sqlite", "postgres"]), help="Of the SQL.  [default: the store's]")
@with_store
@with_json
def migrate(place: Place, dialect: str | None, *, dump_sql: bool, as_json: bool) -> None:
    """Make a store, or bring it to the schema of this version.

    Safe to run twice, and by two at once. SQLite files are also migrated by whoever writes to them.

    \b
    leftfold migrate --dump-sql | sqlite3 -bail jobs.db
    leftfold migrate --dump-sql --dialect postgres | psql
    """
    if dump_sql:
        if as_json:
            raise click.UsageError("choose one of --dump-sql and --json")
        click.echo("\n".join(_dump(dialect or address_of(place.url).dialect, place.schema)))
        return
    if dialect is not None:
        raise click.UsageError("--dialect goes with --dump-sql")
    check_place(place, create=True)
    applied = opening.migrate(place.url, schema=place.schema)
    if as_json:
        emit({"store": masked(place.url), "applied": applied})
    else:
        click.echo("\n".join(f"applied {name}" for name in applied) or "nothing to do: the schema is up to date")


def _dump(dialect: str, schema: str) -> Iterator[str]:
    yield "-- The tables of leftfold. One transaction; `leftfold migrate` finds nothing to do behind it."
    yield "BEGIN;"
    yield from _sqlite() if dialect == "sqlite" else _postgres(schema)
    yield "COMMIT;"


def _sqlite() -> Iterator[str]:
    from leftfold.store.sqlite.driver import MIGRATIONS, MIGRATIONS_TABLE  # noqa: PLC0415 - one of the two is loaded

    yield f"{MIGRATIONS_TABLE};"
    for each in MIGRATIONS:
        yield from _steps(each, "INTO leftfold_migrations", "CAST(strftime('%s', 'now') AS INTEGER) * 1000000")


def _postgres(schema: str) -> Iterator[str]:
    from leftfold.store.postgres.driver import PostgresStore  # noqa: PLC0415 - one of the two is loaded, when needed
    from leftfold.store.postgres.wire import quoted  # noqa: PLC0415 - one of the two is loaded, when needed

    store, name = PostgresStore("postgresql://", schema=schema), quoted(schema)  # it connects to nothing
    yield f"CREATE SCHEMA IF NOT EXISTS {name};"
    yield f"{store.bookkeeping()};"
    for each in store.migrations:
        yield from _steps(each, f"INTO {name}.migrations", "clock_timestamp()")


def _steps(migration: Migration, into: str, now: str) -> Iterator[str]:
    version, name, sql, checksum = migration
    yield f"\n-- {version:04d}_{name}"
    yield sql
    yield f"INSERT {into} (version, name, checksum, applied_at) VALUES ({version}, '{name}', '{checksum}', {now});"  # noqa: S608 - printed
