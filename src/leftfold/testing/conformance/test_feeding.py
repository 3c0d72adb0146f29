"""The feed: feed, acknowledge, follow, consumers, forget_consumer."""

from typing import Any

import pytest

from leftfold import NewJob
from leftfold.core.errors import FeedConflictError, LimitExceededError, ValidationError
from leftfold.core.record import Record
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import KIND, Scene, shown

BAD_NAMES = [("", ValidationError), ("no name", ValidationError), ("nul\x00", ValidationError),
             ("x" * 201, LimitExceededError), (7, ValidationError), (None, ValidationError)]  # fmt: skip
BAD_LIMITS = [0, -1, 10_001, None, "7", 1.5, True]


def lines(records: Any) -> list[tuple[str, int]]:
    """Give which events these are."""
    return [(record.job_id, record.version) for record in records]


def everything(scene: Scene) -> dict[str, list[Record]]:
    """Give the log of every job, as `history` tells it."""
    return {job.id: scene.engine.history(job.id) for job in scene.everything()}


def by_job(records: list[Record]) -> dict[str, list[Record]]:
    """Give events by their job, in the order in which they came."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.job_id, []).append(record)
    return found


def some_lives(scene: Scene) -> None:
    """Let several things happen to several jobs, some of them at one moment."""
    for number in range(3):
        scene.enqueued(payload={"n": number}, priority=3 - number)
        claim = scene.started()
        scene.clock.advance(1)
        scene.engine.complete(claim, number)
    scene.engine.enqueue_many([NewJob(KIND) for _ in range(4)])


class TestFeed:
    """A page of what a consumer has not acknowledged."""

    def test_an_empty_world_has_nothing_to_give(self, scene: Scene) -> None:
        page = scene.engine.feed("c")
        assert (page.records, page.caught_up) == ((), True)

    def test_records_are_those_of_the_histories(self, scene: Scene) -> None:
        some_lives(scene)
        page = scene.engine.feed("c")
        assert by_job(list(page.records)) == everything(scene)
        assert page.caught_up

    def test_it_is_oldest_first(self, scene: Scene) -> None:
        some_lives(scene)
        moments = [record.at for record in scene.engine.feed("c").records]
        assert moments == sorted(moments)

    def test_the_same_page_comes_again_until_it_is_acknowledged(self, scene: Scene) -> None:
        some_lives(scene)
        first = scene.engine.feed("c", limit=5)
        assert scene.engine.feed("c", limit=5) == first
        scene.engine.acknowledge(first)
        second = scene.engine.feed("c", limit=5)
        assert not set(lines(second.records)) & set(lines(first.records))

    def test_it_writes_nothing(self, scene: Scene) -> None:
        some_lives(scene)
        with scene.unchanged():
            scene.engine.feed("c")
        assert scene.engine.consumers() == []

    @pytest.mark.parametrize("limit", [1, 2, 3, 16, 17, 10_000])
    def test_a_page_has_no_more_than_its_limit_and_says_when_it_is_the_last(self, scene: Scene, limit: int) -> None:
        some_lives(scene)
        total = sum(len(log) for log in everything(scene).values())
        given: list[Record] = []
        while not (page := scene.engine.feed("c", limit=limit)).caught_up:
            assert 1 <= len(page.records) <= limit
            given += page.records
            scene.engine.acknowledge(page)
        given += page.records
        assert len(given) == total
        assert by_job(given) == everything(scene)

    @pytest.mark.parametrize(("start", "events"), [("beginning", 2), ("now", 1)])
    def test_a_new_consumer_starts_where_it_says(self, scene: Scene, start: Any, events: int) -> None:
        scene.enqueued()
        scene.engine.feed("c", start=start)
        scene.enqueued()
        assert len(scene.engine.feed("c", start=start).records) == events

    def test_to_start_now_makes_it_known(self, scene: Scene) -> None:
        scene.engine.feed("c", start="now")
        assert [consumer.name for consumer in scene.engine.consumers()] == ["c"]

    def test_who_has_started_starts_no_more(self, scene: Scene) -> None:
        scene.enqueued()
        scene.engine.acknowledge(scene.engine.feed("c"))
        scene.enqueued()
        assert len(scene.engine.feed("c", start="now").records) == 1

    def test_consumers_do_not_know_of_each_other(self, scene: Scene) -> None:
        some_lives(scene)
        whole = scene.engine.feed("one")
        scene.engine.acknowledge(scene.engine.feed("two", limit=3))
        scene.engine.acknowledge(scene.engine.feed("two", limit=4))
        assert scene.engine.feed("one").records == whole.records
        assert scene.engine.feed("two").records == whole.records[7:]

    def test_a_renewal_is_no_event(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.acknowledge(scene.engine.feed("c"))
        scene.engine.heartbeat(claim)
        assert scene.engine.feed("c").records == ()

    @pytest.mark.parametrize(("consumer", "error"), BAD_NAMES, ids=shown)
    def test_what_is_no_name_is_refused(self, scene: Scene, consumer: Any, error: type[Exception]) -> None:
        with scene.refuses(error):
            scene.engine.feed(consumer)

    @pytest.mark.parametrize("limit", BAD_LIMITS, ids=shown)
    def test_what_is_no_limit_is_refused(self, scene: Scene, limit: Any) -> None:
        with scene.refuses(ValidationError if not isinstance(limit, int) or limit is True else LimitExceededError):
            scene.engine.feed("c", limit=limit)

    @pytest.mark.parametrize("start", ["", "end", None, 0], ids=shown)
    def test_what_is_no_start_is_refused(self, scene: Scene, start: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.feed("c", start=start)


class TestAcknowledge:
    """The consumer goes on behind a page."""

    def test_what_comes_next_is_what_happened_since(self, scene: Scene) -> None:
        first = scene.enqueued()
        scene.engine.acknowledge(scene.engine.feed("c"))
        second = scene.enqueued()
        assert lines(scene.engine.feed("c").records) == [(second, 1)]
        scene.engine.acknowledge(scene.engine.feed("c"))
        scene.held(first)
        assert lines(scene.engine.feed("c").records) == [(first, 2)]

    def test_an_empty_page_makes_the_consumer_known(self, scene: Scene) -> None:
        scene.engine.acknowledge(scene.engine.feed("c"))
        assert [(each.name, each.behind) for each in scene.engine.consumers()] == [("c", 0)]

    @pytest.mark.parametrize("is_new", [True, False])
    def test_of_two_readers_of_one_page_the_second_is_refused(self, scene: Scene, is_new: bool) -> None:
        some_lives(scene)
        if not is_new:
            scene.engine.acknowledge(scene.engine.feed("c", limit=2))
        page = scene.engine.feed("c", limit=5)
        scene.engine.acknowledge(page)
        after = scene.engine.feed("c")
        with scene.refuses(FeedConflictError):
            scene.engine.acknowledge(page)
        assert scene.engine.feed("c") == after

    def test_a_page_that_was_read_before_another_was_acknowledged_is_refused(self, scene: Scene) -> None:
        some_lives(scene)
        long, short = scene.engine.feed("c", limit=10), scene.engine.feed("c", limit=2)
        scene.engine.acknowledge(short)
        with scene.refuses(FeedConflictError):
            scene.engine.acknowledge(long)
        assert lines(scene.engine.feed("c", limit=8).records) == lines(long.records[2:])

    def test_a_page_of_one_who_is_forgotten_is_refused(self, scene: Scene) -> None:
        scene.enqueued()
        scene.engine.acknowledge(scene.engine.feed("c"))
        page = scene.engine.feed("c")
        scene.engine.forget_consumer("c")
        with scene.refuses(FeedConflictError):
            scene.engine.acknowledge(page)

    def test_a_page_of_a_namesake_who_was_forgotten_is_refused(self, scene: Scene) -> None:
        some_lives(scene)
        scene.engine.acknowledge(scene.engine.feed("c", limit=1))
        old = scene.engine.feed("c", limit=10)
        scene.engine.forget_consumer("c")
        scene.clock.advance(1)
        scene.engine.acknowledge(scene.engine.feed("c", limit=1))
        with scene.refuses(FeedConflictError):
            scene.engine.acknowledge(old)

    @pytest.mark.parametrize("within", [object(), 7, "postgresql:///"], ids=lambda value: type(value).__name__)
    def test_what_is_no_transaction_is_refused(self, scene: Scene, within: Any) -> None:
        scene.enqueued()
        page = scene.engine.feed("c")
        with scene.refuses(ValidationError):
            scene.engine.acknowledge(page, within=within)
        assert scene.engine.consumers() == []


class TestFollow:
    """Every event up to now, one by one."""

    def test_it_gives_everything_and_then_only_what_is_new(self, scene: Scene) -> None:
        some_lives(scene)
        assert by_job(list(scene.engine.follow("c"))) == everything(scene)
        assert list(scene.engine.follow("c")) == []
        job_id = scene.enqueued()
        assert lines(scene.engine.follow("c")) == [(job_id, 1)]

    @pytest.mark.parametrize("limit", [1, 2, 7, 500])
    def test_the_size_of_its_pages_changes_nothing(self, scene: Scene, limit: int) -> None:
        some_lives(scene)
        assert by_job(list(scene.engine.follow("c", limit=limit))) == everything(scene)

    def test_what_happens_meanwhile_comes_too(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND) for _ in range(4)])
        given = []
        for record in scene.engine.follow("c", limit=2):
            given.append(record)
            if len(given) == 1:
                some_lives(scene)
        assert by_job(given) == everything(scene)

    def test_who_stops_in_the_middle_gets_the_page_again(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND) for _ in range(6)])
        following = scene.engine.follow("c", limit=2)
        begun = [next(following) for _ in range(3)]
        whole = scene.engine.feed("other").records
        assert tuple(begun) == whole[:3]
        assert list(scene.engine.follow("c")) == list(whole[2:])

    def test_an_empty_world_ends_it_at_once_and_it_is_known_from_then_on(self, scene: Scene) -> None:
        assert list(scene.engine.follow("c")) == []
        assert [each.name for each in scene.engine.consumers()] == ["c"]

    @pytest.mark.parametrize(("consumer", "error"), BAD_NAMES, ids=shown)
    def test_what_is_no_name_is_refused(self, scene: Scene, consumer: Any, error: type[Exception]) -> None:
        with scene.refuses(error):
            next(scene.engine.follow(consumer))

    @pytest.mark.parametrize("limit", [0, 10_001])
    def test_what_is_no_limit_is_refused(self, scene: Scene, limit: int) -> None:
        with scene.refuses(LimitExceededError):
            next(scene.engine.follow("c", limit=limit))


class TestConsumers:
    """Who reads the feed, and how far behind it is."""

    def test_nobody_reads_an_empty_world(self, scene: Scene) -> None:
        assert scene.engine.consumers() == []

    def test_they_come_by_name(self, scene: Scene) -> None:
        for name in ("b", "a", "C"):
            scene.engine.feed(name, start="now")
        assert [each.name for each in scene.engine.consumers()] == ["C", "a", "b"]

    @pytest.mark.parametrize("limit", [1, 3, 5, 500])
    def test_behind_counts_what_is_not_acknowledged_at_every_step(self, scene: Scene, limit: int) -> None:
        some_lives(scene)
        left = [record.at for record in scene.engine.feed("other").records]
        while (page := scene.engine.feed("c", limit=limit)).records:
            scene.engine.acknowledge(page)
            left = left[len(page.records) :]
            (consumer,) = scene.engine.consumers()
            assert (consumer.behind, consumer.oldest_at) == (len(left), left[0] if left else None)
        assert left == []

    def test_it_tells_when_it_started_and_when_it_moved_last(self, scene: Scene) -> None:
        scene.engine.feed("c", start="now")
        scene.clock.advance(5)
        scene.enqueued()
        scene.engine.acknowledge(scene.engine.feed("c"))
        (consumer,) = scene.engine.consumers()
        assert (consumer.started_at, consumer.moved_at) == (START, START + 5_000_000)

    def test_it_writes_nothing(self, scene: Scene) -> None:
        some_lives(scene)
        page = scene.engine.feed("c")
        with scene.unchanged():
            scene.engine.consumers()
        scene.engine.acknowledge(page)


class TestForgetConsumer:
    """A consumer that nobody waits for."""

    def test_it_is_gone_and_others_are_not(self, scene: Scene) -> None:
        scene.engine.feed("c", start="now")
        scene.engine.feed("d", start="now")
        assert scene.engine.forget_consumer("c") is True
        assert [each.name for each in scene.engine.consumers()] == ["d"]

    def test_one_of_the_same_name_starts_anew(self, scene: Scene) -> None:
        some_lives(scene)
        first = list(scene.engine.follow("c"))
        scene.engine.forget_consumer("c")
        assert list(scene.engine.follow("c")) == first

    def test_one_that_nobody_knows_is_no_mistake(self, scene: Scene) -> None:
        with scene.unchanged():
            assert scene.engine.forget_consumer("c") is False

    @pytest.mark.parametrize(("consumer", "error"), BAD_NAMES, ids=shown)
    def test_what_is_no_name_is_refused(self, scene: Scene, consumer: Any, error: type[Exception]) -> None:
        with scene.refuses(error):
            scene.engine.forget_consumer(consumer)
