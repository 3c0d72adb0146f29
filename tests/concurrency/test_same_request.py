"""One request, asked by many at once: it happens once, and everybody hears the same answer."""

from multiprocessing.synchronize import Barrier

from msgspec.structs import replace
from tests.concurrency.crowd import DEADLINE, Crowd, of_kind, processes, rounds
from tests.places import Place, logs_of

from leftfold import Claim, NewJob, Receipt
from leftfold.core.errors import RequestReusedError


def test_of_32_equal_requests_to_enqueue_one_makes_the_job(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(10)):
            answers = crowd.same(engine.enqueue, "work", {"n": n}, request_id=f"ask-{n}")
            assert len(of_kind(answers, Receipt)) == 32
            assert len(set(of_kind(answers, Receipt))) == 1
        assert len(logs_of(engine)) == rounds(10)


def test_of_32_equal_requests_for_a_batch_one_makes_it(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(5)):
            jobs = [NewJob("work", place, key=f"{n}-{place}") for place in range(10)]
            answers = crowd.same(engine.enqueue_many, jobs, request_id=f"ask-{n}")
            assert len({tuple(answer) for answer in of_kind(answers, list)}) == 1
        assert len(logs_of(engine)) == 10 * rounds(5)


def test_of_32_equal_requests_to_claim_some_of_many_one_gets_them(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(5)):
            engine.enqueue_many(NewJob("work") for _ in range(128))
            answers = crowd.same(engine.claim, "worker", limit=2, request_id=f"ask-{n}")
            claims = of_kind(answers, list)
            assert [len(each) for each in claims] == [2] * 32
            assert len({claim.token for each in claims for claim in each}) == 1
            assert len({tuple(claim.job_id for claim in each) for each in claims}) == 1
            assert all(engine.start(claim).changed for claim in claims[0])
        claimed = [events for events in logs_of(engine).values() if "claimed" in events]
        assert len(claimed) == 2 * rounds(5)


def test_of_32_equal_requests_to_claim_the_only_job_all_hear_that_it_is_theirs(place: Place) -> None:
    """Whoever asks again while the first one is still on its way must not hear that there is nothing."""
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(10)):
            job_id = engine.enqueue("work").job_id
            answers = crowd.same(engine.claim, "worker", request_id=f"ask-{n}")
            assert [[claim.job_id for claim in each] for each in of_kind(answers, list)] == [[job_id]] * 32
            assert len({claim.token for each in of_kind(answers, list) for claim in each}) == 1


def test_of_32_equal_requests_to_claim_a_job_by_its_id_all_hear_the_same(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(10)):
            job_id = engine.enqueue("work").job_id
            answers = crowd.same(engine.claim, "worker", job_id=job_id, request_id=f"ask-{n}")
            assert [type(answer).__name__ for answer in answers] == ["list"] * 32
            assert len({claim.token for each in of_kind(answers, list) for claim in each}) == 1
            assert [record.event.wire for record in engine.history(job_id)] == ["enqueued", "claimed"]


def test_of_32_equal_requests_to_cancel_one_cancels(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for held in [False, True] * rounds(5):
            job_id = engine.enqueue("work").job_id
            claims: list[Claim] = engine.claim("worker") if held else []
            answers = of_kind(crowd.same(engine.cancel, job_id, request_id="stop"), Receipt)
            assert len(answers) == 32
            assert [answer.changed for answer in answers].count(True) == 1
            assert len({replace(answer, changed=True) for answer in answers}) == 1
            written = [record.event.wire for record in engine.history(job_id)]
            assert written == ["enqueued", *(["claimed", "cancel_requested"] if claims else ["cancelled"])]


def test_of_two_requests_under_one_id_the_later_one_is_refused(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(10)):
            answers = crowd.each(lambda who, n: engine.enqueue(f"work-{who % 2}", request_id=f"ask-{n}"), n)
            assert len(of_kind(answers, Receipt)) == len(of_kind(answers, RequestReusedError)) == 16
            assert len(set(of_kind(answers, Receipt))) == 1
        assert len(logs_of(engine)) == rounds(10)


def test_equal_requests_of_8_processes_happen_once(on_sqlite: Place, library: str) -> None:
    repeated = rounds(10)
    told = processes(8, ask_the_same, on_sqlite, repeated)
    assert len({tuple(answers) for answers in told}) == 1
    with on_sqlite.open() as engine:
        logs = logs_of(engine)
        assert len(logs) == repeated
        assert set(map(tuple, logs.values())) == {("enqueued", "claimed", "cancel_requested")}


def ask_the_same(_: int, barrier: Barrier, place: Place, repeated: int) -> list[tuple[str, str]]:
    answers = []
    with place.open() as engine:
        for n in range(repeated):
            barrier.wait(DEADLINE)
            made = engine.enqueue("work", request_id=f"make-{n}", by="somebody")
            barrier.wait(DEADLINE)
            (claim,) = engine.claim("worker", request_id=f"take-{n}")
            engine.cancel(made.job_id, request_id="stop", by="somebody")
            answers.append((made.job_id, claim.token))
    return answers
