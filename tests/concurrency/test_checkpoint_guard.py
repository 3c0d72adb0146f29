"""On SQLite versions that can lose commits a checkpoint runs only while the write lock is held, yet often enough."""

from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.concurrency.crowd import processes
from tests.concurrency.hammer import log_size
from tests.places import Place

from leftfold import NewJob
from leftfold.store.sqlite.library import can_lose_commits, sqlite

#: Each of the loads below writes more than twice as much.
LOG_MAX = 8 * 1024 * 1024
LOAD = [NewJob("work", "x" * 2_000) for _ in range(10)]


def alone(act: Any, place: Place) -> Any:
    """Run it in a process of its own, which has the SQLite library that the environment names."""
    (answer,) = processes(1, act, place)
    return answer


@pytest.mark.parametrize(
    ("version", "can_lose"),
    [
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_the_versions_that_can_lose_commits_are_known(version: tuple[int, ...], can_lose: bool) -> None:
    assert can_lose_commits(version) is can_lose


class Settings(NamedTuple):
    """How often each connection of a process checkpoints by itself: ours, and one of the caller's."""

    vulnerable: bool
    ours: set[int]
    callers: int


def test_where_commits_can_be_lost_no_connection_checkpoints_by_itself(on_sqlite: Place, library: str) -> None:
    settings = alone(automatic_checkpoints, on_sqlite)
    if settings.vulnerable:
        assert (settings.ours, settings.callers) == ({0}, 0)
    else:
        assert (settings.ours, settings.callers) == ({1000}, 1000)


def automatic_checkpoints(_: int, __: Barrier, place: Place) -> Settings:
    with place.open() as engine:
        callers = sqlite.connect(place.path)
        engine.enqueue("work", within=callers)
        callers.commit()
        ours = [each for each in vars(engine.store).values() if isinstance(each, sqlite.Connection)]
        settings = [each.execute("PRAGMA wal_autocheckpoint").fetchone()[0] for each in (*ours, callers)]
        callers.close()
    return Settings(can_lose_commits(), set(settings[:-1]), settings[-1])


class Watch:
    """Looks at every statement of every connection of a store, and at the write lock when a checkpoint begins."""

    def __init__(self, place: Place, store: Any) -> None:
        self.store = store
        self.statements: list[str] = []
        self.locked: list[bool] = []  # at each checkpoint, whether somebody held the write lock
        self.rival = sqlite.connect(place.path, timeout=0, isolation_level=None, check_same_thread=False)
        for each in list(vars(store).values()):
            if isinstance(each, sqlite.Connection):
                each.set_trace_callback(self.see)

    def see(self, statement: str) -> None:
        self.statements.append(statement)
        if "wal_checkpoint" in statement:
            self.locked.append(not self.takes_the_lock())

    def takes_the_lock(self) -> bool:
        """Try to be the one writer there may be, for a moment."""
        try:
            self.rival.execute("BEGIN IMMEDIATE")
        except sqlite.OperationalError:
            return False
        self.rival.execute("ROLLBACK")
        return True


def test_a_checkpoint_runs_only_while_the_write_lock_is_held(on_sqlite: Place, library: str) -> None:
    vulnerable, locked = alone(watch_the_lock, on_sqlite)
    assert all(locked)
    assert bool(locked) is vulnerable, "it does run where it has to, and is left to SQLite elsewhere"


def watch_the_lock(_: int, __: Barrier, place: Place) -> tuple[bool, list[bool]]:
    with place.open() as engine:
        watch = Watch(place, engine.store)
        for _ in range(60):
            engine.enqueue_many(LOAD)
        watch.rival.close()
        return can_lose_commits(), watch.locked


def test_nothing_stands_between_a_commit_and_its_acknowledgement(on_sqlite: Place, library: str) -> None:
    """A checkpoint behind the commit would wait for the lock, and then fail what was committed, or delay it."""
    vulnerable, last, checkpoints = alone(watch_the_end, on_sqlite)
    assert set(last) == {"COMMIT"}
    assert bool(checkpoints) is vulnerable


def watch_the_end(_: int, __: Barrier, place: Place) -> tuple[bool, list[str], int]:
    with place.open() as engine:
        watch = Watch(place, engine.store)
        last = []
        for _ in range(60):
            engine.enqueue_many(LOAD)
            last.append(watch.statements[-1])
        watch.rival.close()
        return can_lose_commits(), last, len(watch.locked)


def test_who_reads_or_leaves_while_others_stay_copies_nothing_into_the_file(on_sqlite: Place, library: str) -> None:
    before, after_reading, after_leaving, log, after_the_last, last_log = alone(read_and_leave, on_sqlite)
    assert before == after_reading == after_leaving
    assert log > 0
    assert after_the_last != before
    assert last_log == 0, "the last one to leave copies all of it: nobody else can be there then"


def read_and_leave(_: int, __: Barrier, place: Place) -> tuple[Any, ...]:
    def file() -> tuple[int, int]:
        # To open and close the file here would drop the locks that SQLite holds on it.
        stat = Path(place.path).stat()
        return stat.st_mtime_ns, stat.st_size

    stays, leaves = place.open(), place.open()
    job = leaves.enqueue("work")
    before = file()
    leaves.list()
    leaves.history(job.job_id)
    leaves.counts()
    after_reading = file()
    leaves.close()
    after_leaving, log = file(), log_size(place)
    stays.close()
    return before, after_reading, after_leaving, log, file(), log_size(place)


def longest_log(place: Place, act: Any) -> int:
    """Repeat an act that commits, and give how long the log became."""
    longest = 0
    for _ in range(200):
        act()
        longest = max(longest, log_size(place))
    return longest


def test_the_log_stays_bounded_where_one_process_writes_on_and_on(on_sqlite: Place, library: str) -> None:
    assert alone(write_on_and_on, on_sqlite) < LOG_MAX


def write_on_and_on(_: int, __: Barrier, place: Place) -> int:
    with place.open() as engine:
        return longest_log(place, lambda: engine.enqueue_many(LOAD))


def test_the_log_stays_bounded_where_writers_come_and_go_beside_one_who_only_reads(
    on_sqlite: Place, library: str
) -> None:
    """A dashboard is open all day; a cron job enqueues and leaves, and is never the last one."""
    assert alone(come_and_go, on_sqlite) < LOG_MAX


def come_and_go(_: int, __: Barrier, place: Place) -> int:
    def act() -> None:
        with place.open() as engine:
            engine.enqueue_many(LOAD)

    with place.open() as reader:
        reader.list()
        return longest_log(place, act)


@pytest.mark.parametrize("begins", [None, "BEGIN"])
def test_the_log_stays_bounded_where_a_process_only_enqueues_within_its_own_transactions(
    on_sqlite: Place, library: str, begins: str | None
) -> None:
    vulnerable, longest, locked = alone(partial(enqueue_within, begins=begins), on_sqlite)
    assert longest < LOG_MAX
    assert all(locked)
    assert bool(locked) is vulnerable
    assert len(locked) < 100, "nor does every transaction copy the log"


def enqueue_within(_: int, __: Barrier, place: Place, begins: str | None) -> tuple[bool, int, list[bool]]:
    with place.open() as engine:
        watch = Watch(place, engine.store)
        callers = sqlite.connect(place.path, isolation_level=None if begins else "")

        def act() -> None:
            if begins:
                callers.execute(begins)
            engine.enqueue_many(LOAD, within=callers)
            callers.commit()

        longest = longest_log(place, act)
        callers.close()
        watch.rival.close()
    return can_lose_commits(), longest, watch.locked
