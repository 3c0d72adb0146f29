"""Logs that were written long ago are read today, and come to the same jobs."""

import pytest
from tests.store import corpus
from tests.store.world import World
from tests.store.write_golden import LIVES

from leftfold.core import events as e
from leftfold.core.job import fold, logged
from leftfold.core.lifecycle import State
from leftfold.core.record import check_chain, seal


@pytest.mark.parametrize("name", corpus.names())
def test_a_stored_log_has_its_chain_and_comes_to_the_job_that_it_always_was(name: str) -> None:
    kept = corpus.read(name)
    assert (
        seal(check_chain(((record,), seal_) for record, seal_ in zip(kept.records, kept.seals, strict=True)))
        == kept.seals[-1]
    )
    job = fold(kept.records)
    assert job is not None
    assert corpus.missing(kept.job, corpus.spelled_out(logged(job))) == []


def test_both_stores_take_the_stored_logs_and_give_them_back(world: World) -> None:
    logs = []
    for name in corpus.names():
        records = corpus.read(name).records
        job = fold(records)
        assert job is not None
        logs.append((job, records))
    world.load(logs)
    world.check(job.id for job, _ in logs)


def test_every_event_type_is_kept_and_so_is_every_kind_of_end() -> None:
    logs = [corpus.read(name) for name in corpus.names()]
    assert {type(record.event) for log in logs for record in log.records} == {*e.TRANSITIONS, *e.NOTES}
    ended = {log.job["state"] for log in logs}
    assert {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DEAD_LETTERED} <= ended
    assert set(corpus.names()) >= set(LIVES)


def test_no_file_of_the_corpus_was_changed() -> None:
    lines = corpus.CHECKSUMS.read_text(encoding="utf-8").splitlines()
    assert {name: checksum for checksum, name in (line.split() for line in lines)} == corpus.checksums()


def test_a_field_that_is_added_later_asks_for_no_change_here() -> None:
    kept = corpus.read(corpus.names()[0]).job
    newer = {**kept, "mood": "fine", "spec": {**kept["spec"], "colour": "blue"}}
    assert corpus.missing(kept, newer) == []
    assert corpus.missing(kept, {**newer, "attempt": 99}) == [f"job.attempt is 99, and was {kept['attempt']}"]
    del newer["failures"]
    assert corpus.missing(kept, newer) == ["job.failures is gone"]
