"""Every operation of the engine that writes, as a row: what must be there first, and the call.

A row's call is made on a sync or an async engine, by a process that dies or over a connection that breaks, and then
once more. `SETTLES` says that the same call, asked again, comes to what one call would have come to.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from tests.crash import scenes as s
from tests.crash.scenes import Held

from leftfold import Actor, Engine, Failure, NewJob
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.lifecycle import Who
from leftfold.core.values import WaitFor
from leftfold.store.audit import What
from leftfold.store.creating import PART
from leftfold.store.ops import Ask

KEEPER: Final = Actor(who=Who.KEEPER, name="keeper")
ASKED: Final = "ask-1"


class Repeated(Enum):
    """What it means to ask again after an answer that never came."""

    SETTLES = "it happens once"
    RENEWS = "the lease is renewed once more, and nothing else"
    ANEW = "without a request_id nobody can know that it is the same: it happens again"


class Row(NamedTuple):
    """An operation. Where it speaks of many jobs, `whole` says that they all share its fate."""

    name: str
    operation: str
    scene: Callable[[Engine], Held]
    act: Callable[[Any, Held], Any]
    repeated: Repeated = Repeated.SETTLES
    whole: bool = True
    answers: bool = True  # whoever asks again hears the same
    skips: bool = False  # what a session still holds that is about to die is left to the next time
    folds: bool = False  # the write is one of those behind which the counters are folded
    leaves: bool = False  # the last commit is of what somebody does later if it fails: the caller hears nothing of it
    harmed: tuple[What, ...] = ()  # what `verify` finds in the scene,
    left: tuple[What, ...] = ()  # and when all is done
    on_server: bool = False  # the scene is not to be had in a file
    proof: Callable[[Engine, Any], None] | None = None  # what the answer must be good for


def _each_its_own(held: Held) -> list[Ask]:
    good, bad = held.claims
    return [
        Ask(good.job_id, c.Complete(by=good.actor)),
        Ask(bad.job_id, c.Fail(by=bad.actor, error=Failure(code="no"))),
    ]


def claims_are_good(engine: Engine, claims: Any) -> None:
    """The claims that were given again are the claims that were given."""
    assert claims
    assert all(engine.start(claim).changed for claim in claims)


def claims_are_started(engine: Engine, claims: Any) -> None:
    """The claims that were given again can be completed."""
    assert claims
    assert all(engine.complete(claim).changed for claim in claims)


MAKING: Final = (
    Row("enqueue", "enqueue", s.nothing, lambda on, _: on.enqueue("new", {"n": 1}), Repeated.ANEW),
    Row(
        "enqueue, and fold the counters", "enqueue", s.queued, lambda on, _: on.enqueue("new"),
        Repeated.ANEW, folds=True,
    ),
    Row("enqueue by request", "enqueue", s.nothing, lambda on, _: on.enqueue("new", {"n": 1}, request_id=ASKED)),
    Row(
        "enqueue with a free key", "enqueue", s.nothing,
        lambda on, _: on.enqueue("new", key="k", request_id=ASKED),
    ),
    Row(
        "enqueue with a key, without a request", "enqueue", s.nothing,
        lambda on, _: on.enqueue("new", key="k"),
    ),
    Row(
        "enqueue with a taken key, which gives its holder", "enqueue", s.with_key,
        lambda on, _: on.enqueue("a", key="k", on_conflict="return", request_id=ASKED),
    ),
    Row(
        "enqueue with a taken key, which is refused", "enqueue", s.with_key,
        lambda on, _: on.enqueue("a", key="k", on_conflict="raise", request_id=ASKED),
    ),
    Row(
        "enqueue with a taken key, which is skipped", "enqueue", s.with_key,
        lambda on, _: on.enqueue("a", key="k", on_conflict="skip", request_id=ASKED),
    ),
    Row(
        "enqueue with a taken key, which replaces", "enqueue", s.with_key,
        lambda on, _: on.enqueue("a", "other", key="k", on_conflict="replace", request_id=ASKED),
    ),
    Row(
        "enqueue behind other jobs", "enqueue", s.queued,
        lambda on, held: on.enqueue("new", after=[held.job], request_id=ASKED),
    ),
    Row(
        "enqueue many", "enqueue_many", s.nothing,
        lambda on, _: on.enqueue_many(NewJob("new", n) for n in range(3)), Repeated.ANEW,
    ),
    Row(
        "enqueue more than is sent at once", "enqueue_many", s.nothing,
        lambda on, _: on.enqueue_many(NewJob("new", n) for n in range(PART + PART // 3)), Repeated.ANEW,
    ),
    Row(
        "enqueue more than is sent at once, of two kinds", "enqueue_many", s.nothing,
        lambda on, _: on.enqueue_many(NewJob("new" if n % 2 else "newer", n) for n in range(PART + 1)),
        Repeated.ANEW,
    ),
    Row(
        "enqueue many by request", "enqueue_many", s.with_key,
        lambda on, held: on.enqueue_many(
            [NewJob("a", 1, key="k"), NewJob("b", 2, key="k"), NewJob("c", 3), NewJob("d", 4, after=[held.job])],
            request_id=ASKED,
        ),
    ),
    Row("receive", "receive", s.nothing, lambda on, _: on.receive("new", 1, key="k", request_id=ASKED)),
    Row("admit", "admit", s.received, lambda on, held: on.admit(held.job, request_id=ASKED)),
    Row(
        "admit another job in its place", "admit", s.received,
        lambda on, held: on.admit(held.job, job=NewJob("a", 2, queue="other", key="k"), request_id=ASKED),
    ),
)  # fmt: skip

OWNING: Final = (
    Row("claim", "claim", s.two_queued, lambda on, _: on.claim("worker", limit=2), Repeated.ANEW),
    Row(
        "claim by request", "claim", s.two_queued,
        lambda on, _: on.claim("worker", limit=2, request_id=ASKED), proof=claims_are_good,
    ),
    Row("claim and start", "claim", s.two_queued, lambda on, _: on.claim("worker", limit=2, start=True), Repeated.ANEW),
    Row(
        "claim and start by request", "claim", s.two_queued,
        lambda on, _: on.claim("worker", limit=2, start=True, request_id=ASKED), proof=claims_are_started,
    ),
    Row("claim by id", "claim", s.queued, lambda on, held: on.claim("worker", job_id=held.job), Repeated.ANEW),
    Row(
        "claim by id, by request", "claim", s.queued,
        lambda on, held: on.claim("worker", job_id=held.job, request_id=ASKED), proof=claims_are_good,
    ),
    Row(
        "claim a stalled job", "claim", s.stalled,
        lambda on, held: on.claim("worker", job_id=held.job, request_id=ASKED), proof=claims_are_good,
    ),
    Row("start", "start", s.claimed, lambda on, held: on.start(held.claim)),
    Row("start by request", "start", s.claimed, lambda on, held: on.start(held.claim, request_id=ASKED)),
    Row("start many", "start_many", s.two_claimed, lambda on, held: on.start_many(held.claims), whole=False),
    Row("heartbeat", "heartbeat", s.running, lambda on, held: on.heartbeat(held.claim), Repeated.RENEWS),
    Row("heartbeat by request", "heartbeat", s.running, lambda on, held: on.heartbeat(held.claim, request_id=ASKED)),
    Row(
        "heartbeat many", "heartbeat_many", s.two_running,
        lambda on, held: on.heartbeat_many(held.claims), Repeated.RENEWS, whole=False,
    ),
    Row("complete", "complete", s.running, lambda on, held: on.complete(held.claim, {"n": 1})),
    Row("complete by request", "complete", s.running, lambda on, held: on.complete(held.claim, 1, request_id=ASKED)),
    Row(
        "complete many, some of them not started", "complete_many", s.one_started_of_two,
        lambda on, held: on.complete_many((claim, 1) for claim in held.claims), whole=False,
    ),
    Row("fail, to be retried", "fail", s.running, lambda on, held: on.fail(held.claim, "no")),
    Row("fail by request", "fail", s.running, lambda on, held: on.fail(held.claim, "no", request_id=ASKED)),
    Row("fail for good", "fail", s.running, lambda on, held: on.fail(held.claim, "no", permanent=True)),
    Row("fail, exhausted", "fail", s.running_last_try, lambda on, held: on.fail(held.claim, "no")),
    Row("fail, exhausted and closed", "fail", s.running_last_try_closed, lambda on, held: on.fail(held.claim, "no")),
    Row(
        "fail many", "fail_many", s.two_running,
        lambda on, held: on.fail_many((claim, "no") for claim in held.claims),
    ),
    Row(
        "settle many, each its own way", "settle_many", s.two_running,
        lambda on, held: on.settle_many(_each_its_own(held)),
        whole=False,
    ),
    Row(
        "settle many quietly, each its own way", "settle_quietly", s.two_running,
        lambda on, held: on.settle_quietly(_each_its_own(held)),
        whole=False,
    ),
    Row("release", "release", s.running, lambda on, held: on.release(held.claim, due=60, reason="later")),
    Row("release many", "release_many", s.two_running, lambda on, held: on.release_many(held.claims)),
    Row(
        "suspend for a time", "suspend", s.running,
        lambda on, held: on.suspend(held.claim, "nap", until=WaitFor.TIMER, deadline=60),
    ),
    Row(
        "suspend for other jobs", "suspend", s.running_beside_another,
        lambda on, held: on.suspend(held.claim, "both", until=WaitFor.JOBS, jobs=[held.others[0]]),
    ),
    Row("park", "suspend", s.running, lambda on, held: on.suspend(held.claim, "approved")),
    Row("park by request", "suspend", s.running, lambda on, held: on.suspend(held.claim, "ok", request_id=ASKED)),
    Row(
        "suspend many", "suspend_many", s.two_running,
        lambda on, held: on.suspend_many(held.claims, "approved"),
    ),
    Row("note", "note", s.running, lambda on, held: on.note(held.claim, e.Progress(fraction=0.5)), Repeated.ANEW),
    Row(
        "note by request", "note", s.running,
        lambda on, held: on.note(held.claim, e.Progress(fraction=0.5), request_id=ASKED),
    ),
    Row(
        "note of somebody else", "note", s.queued,
        lambda on, held: on.note(held.job, e.Custom(name="seen"), request_id=ASKED),
    ),
    Row(
        "note many, two on one log", "note_many", s.two_running,
        lambda on, held: on.note_many(
            (claim, e.Progress(fraction=n / 4)) for n, claim in enumerate([*held.claims, held.claims[0]])
        ),
        Repeated.ANEW, whole=False,
    ),
)  # fmt: skip

TELLING: Final = (
    Row("signal", "signal", s.parked, lambda on, held: on.signal(held.job, "approved", 1, request_id=ASKED)),
    Row("signal too early", "signal", s.queued, lambda on, held: on.signal(held.job, "ok", 1, request_id=ASKED)),
    Row("cancel", "cancel", s.queued, lambda on, held: on.cancel(held.job, request_id=ASKED)),
    Row("cancel softly", "cancel", s.running, lambda on, held: on.cancel(held.job, request_id=ASKED)),
    Row("cancel hard", "cancel", s.running, lambda on, held: on.cancel(held.job, mode="hard", request_id=ASKED)),
    Row("heed a cancellation", "cancel_claim", s.to_be_cancelled, lambda on, held: on.cancel_claim(held.claim)),
    Row("stall", "stall", s.running_to_be_held, lambda on, held: on.stall(held.job, request_id=ASKED)),
    Row(
        "stall and requeue, as a keeper", "stall", s.running,
        lambda on, held: on.stall(held.job, by=KEEPER, request_id=ASKED),
    ),
    Row(
        "stall and set aside, as a keeper", "stall", s.running_last_try,
        lambda on, held: on.stall(held.job, by=KEEPER, request_id=ASKED),
    ),
    Row("requeue", "requeue", s.stalled, lambda on, held: on.requeue(held.job, due=60, request_id=ASKED)),
    Row("reopen", "requeue", s.set_aside, lambda on, held: on.requeue(held.job, reason="mended", request_id=ASKED)),
    Row(
        "reopen many", "requeue_many", s.set_aside,
        lambda on, held: on.requeue_many([held.job], reason="mended", request_id=ASKED),
    ),
    Row(
        "remark on many", "remark_many", s.set_aside,
        lambda on, held: on.remark_many([held.job], "seen", request_id=ASKED),
    ),
    Row(
        "resolve many", "resolve_many", s.set_aside,
        lambda on, held: on.resolve_many([held.job], reason="known", request_id=ASKED),
    ),
    Row("set aside", "dead_letter", s.queued, lambda on, held: on.dead_letter(held.job, "no", request_id=ASKED)),
    Row("set aside, as the owner", "dead_letter", s.running, lambda on, held: on.dead_letter(held.claim, "no")),
    Row("expire", "expire", s.napping, lambda on, held: on.expire(held.job, request_id=ASKED)),
    Row("resume", "resume", s.waiting_for_an_ended_one, lambda on, held: on.resume(held.job, request_id=ASKED)),
    Row("pause", "pause", s.queued, lambda on, _: on.pause("default", reason="stop", by="ann")),
    Row("unpause", "unpause", s.paused, lambda on, _: on.unpause("default")),
)  # fmt: skip

KEEPING: Final = (
    Row("reap", "reap", s.two_overdue, lambda on, _: on.reap(by=KEEPER), answers=False, skips=True),
    Row("begin to follow the feed", "feed", s.queued, lambda on, _: on.feed("reader", start="now")),
    Row("acknowledge", "acknowledge", s.read, lambda on, held: on.acknowledge(held.page), answers=False),
    Row("acknowledge more", "acknowledge", s.read_on, lambda on, held: on.acknowledge(held.page), answers=False),
    Row("forget a consumer", "forget_consumer", s.read_on, lambda on, _: on.forget_consumer("reader")),
    Row("verify", "verify", s.two_running, lambda on, _: on.verify()),
    Row("rebuild", "rebuild", s.two_running, lambda on, _: on.rebuild(reason="to be sure")),
    Row("beat", "beat", s.queued, lambda on, _: on.beat("worker", {"running": 1}), Repeated.ANEW),
    Row("forget a worker", "forget_worker", s.queued, lambda on, _: on.forget_worker("worker")),
    Row("import", "import_jobs", s.exported, lambda on, held: on.import_jobs(held.lines)),
)  # fmt: skip

#: What looks at rows, logs and counters that cannot be true, and freezes or mends them. To rebuild takes several
#: transactions, of which one has something to do.
MENDING: Final = (
    Row(
        "verify, which freezes", "verify", s.drifted_beside_an_unreadable, lambda on, _: on.verify(),
        harmed=(What.ROW, What.UNREADABLE), left=(What.ROW, What.UNREADABLE),
    ),
    Row(
        "rebuild rows", "rebuild", s.two_drifted, lambda on, _: on.rebuild(reason="drifted"),
        answers=False, whole=False, harmed=(What.ROW, What.ROW),
    ),
    Row(
        "rebuild a frozen job", "rebuild", s.frozen, lambda on, held: on.rebuild(held.job, reason="drifted"),
        answers=False, whole=False, harmed=(What.ROW,),
    ),
    Row(
        "rebuild counters", "rebuild", s.miscounted, lambda on, _: on.rebuild(reason="miscounted"),
        answers=False, whole=False, harmed=(What.COUNTS,),
    ),
    Row(
        "rebuild a lost row", "rebuild", s.without_its_row, lambda on, _: on.rebuild(reason="lost"),
        answers=False, whole=False, harmed=(What.COUNTS, What.NO_ROW), on_server=True,
    ),
    Row(
        "reap, and freeze what nobody can read", "reap", s.overdue_beside_an_unreadable,
        lambda on, _: on.reap(by=KEEPER), answers=False, skips=True,
        harmed=(What.UNREADABLE,), left=(What.UNREADABLE,),
    ),
    Row(
        "claim, and freeze what nobody can read", "claim", s.queued_beside_an_unreadable,
        lambda on, _: on.claim("worker", limit=2), Repeated.ANEW, whole=False, skips=True, leaves=True,
        harmed=(What.UNREADABLE,), left=(What.UNREADABLE,),
    ),
)  # fmt: skip

ROWS: Final[Mapping[str, Row]] = {row.name: row for row in (*MAKING, *OWNING, *TELLING, *KEEPING, *MENDING)}
#: Those that can be played in a file: there, a lost row takes the id of its job along.
IN_FILES: Final[Mapping[str, Row]] = {name: row for name, row in ROWS.items() if not row.on_server}

#: What reads, or ends: there is nothing in it to be done by half.
READS: Final = frozenset({
    "get", "is_frozen", "history", "histories", "find", "list", "counts", "queues", "consumers", "export_jobs", "close",
    "clock", "incident", "incidents", "look_many", "next_due", "workers",
})  # fmt: skip
#: What is a row of calls that have rows of their own.
COMPOSED: Final = frozenset({"follow"})
