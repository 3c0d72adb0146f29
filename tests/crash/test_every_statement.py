"""Whoever dies in the middle of an operation, before whichever statement: it happened, or it did not.

Asked again, it has happened once.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.concurrency.crowd import eventually, outcome
from tests.crash.grounds import FileGround, Ground, SchemaGround
from tests.crash.picture import Picture, check, gist, happened, picture_of
from tests.crash.rows import COMPOSED, IN_FILES, READS, ROWS, Repeated, Row
from tests.crash.scenes import Held
from tests.crash.victims import DONE, KILLED, Death, Nursery

from leftfold import AsyncEngine, Engine

STATEMENTS_MAX = 40  # the longest has about 20
SHORTEST = {"sqlite": 3, "postgres": 1}  # BEGIN, a statement, COMMIT; or a statement that commits by itself


def test_every_operation_of_the_engine_has_a_row() -> None:
    public = {name for name in dir(Engine) if not name.startswith("_") and callable(getattr(Engine, name))}
    assert public - READS - COMPOSED == {row.operation for row in ROWS.values()}
    assert {name for name in dir(AsyncEngine) if not name.startswith("_")} == public | {
        name for name in dir(Engine) if not name.startswith("_")
    }


@pytest.mark.parametrize("row", IN_FILES.values(), ids=IN_FILES)
@pytest.mark.parametrize("library", ["stdlib", "pysqlite3"])
def test_who_dies_at_any_statement_on_sqlite_leaves_all_or_nothing(
    row: Row, library: str, on_sqlite: FileGround, nursery_of: Callable[[str], Nursery]
) -> None:
    if library == "pysqlite3":
        pytest.importorskip("pysqlite3")
    died = die_everywhere(row, on_sqlite, nursery_of(library))
    assert died >= SHORTEST["sqlite"]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_who_dies_at_any_statement_on_postgresql_leaves_all_or_nothing(
    row: Row, on_postgres: SchemaGround, nursery_of: Callable[[str], Nursery]
) -> None:
    died = die_everywhere(row, on_postgres, nursery_of(""))
    assert died >= SHORTEST["postgres"] + row.folds


def die_everywhere(row: Row, ground: Ground, nursery: Nursery) -> int:
    """Die before statement 1, 2, … until there is none left, and behind the last; give how many there were."""
    run = undisturbed(row, ground)
    for statement in range(1, STATEMENTS_MAX):
        held = ground.set_up(row)
        code = nursery.kill(Death(ground.place, row.name, held, statement))
        assert code in {KILLED, DONE}
        found = happened(picture_of(ground.engine(), row), run.before, run.after, whole=row.whole)
        if statement == 1:
            assert found is (run.before == run.after), "nothing was said, and something happened"
        if code == DONE:
            assert found is True, "it was acknowledged, and it did not happen"
        if row.repeated is not Repeated.ANEW:
            settle(row, ground.engine(), held, run)
        if code == DONE:
            return statement - 1
    raise AssertionError("there is no end to it")


class Run(NamedTuple):
    """What an operation that nothing disturbs starts from, comes to and answers."""

    before: Picture
    after: Picture
    answer: object


def undisturbed(row: Row, ground: Ground) -> Run:
    """Carry out the row, and let nobody die."""
    held = ground.set_up(row)
    engine = ground.engine()
    before = picture_of(engine, row)
    answer = outcome(row.act, engine, held)
    after = picture_of(engine, row)
    assert ([what for what, _ in before.findings], [what for what, _ in after.findings]) == (
        sorted(row.harmed),
        sorted(row.left),
    )
    return Run(before, after, answer)


def settle(row: Row, engine: Engine, held: Held, run: Run) -> None:
    """Ask again, and demand what one call alone would have come to."""
    if row.skips:
        eventually(lambda: row.act(engine, held) == [] and picture_of(engine, row) == run.after)
    repeated = outcome(row.act, engine, held)
    assert not row.answers or gist(repeated) == gist(run.answer)
    assert picture_of(engine, row) == run.after
    if row.proof:
        row.proof(engine, repeated)
        check(engine)
