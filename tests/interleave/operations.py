"""The operations: a name, the method of the engine, the state that the job is in, and the call.

Owners speak with the claim of the set-up: where its lease is over by then, they are the zombies that a fence is for.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from tests.interleave.scenes import KEEPER, KEYS, POLICY, Scene

import leftfold
from leftfold import Claim, Engine, Failure
from leftfold.asking import NewJob
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import FeedConflictError
from leftfold.engine.running import one
from leftfold.store.feed import NOTHING, FeedPage
from leftfold.store.ops import Ask
from leftfold.store.query import Operation as StoreOperation
from leftfold.testing.clock import FakeClock

T = TypeVar("T")
Call = Callable[[Engine, Scene], Any]


class Operation(NamedTuple):
    """A row of the table."""

    name: str
    method: str
    state: str
    call: Call
    #: It passes over what somebody has locked: it may find nothing, and it never waits.
    passes_over: bool = False
    #: Each job of a batch has an outcome of its own, and is in order with the other call by itself.
    by_job: bool = False
    #: It speaks with the claim of the set-up.
    owns: bool = False
    #: No other set-up has what it needs.
    only_there: bool = False
    #: What its side has done a while ago; gives the jobs that it made.
    before: Callable[[Engine, Scene], list[str]] | None = None

    def can_play(self, state: str) -> bool:
        """Tell whether a set-up has what the call needs: a job that was only received was never claimed."""
        return state == self.state or not (self.only_there or (state == "inbox" and self.owns))

    def __str__(self) -> str:
        return self.name


PROGRESS: Final = e.Progress(fraction=0.5)
EVIDENCE: Final = e.EvidenceAdded(name="report")


def _new(scene: Scene, word: str = "key") -> dict[str, Any]:
    return {"queue": scene.queue, "key": scene.named(word), "policy": POLICY}


def _ids(engine: Engine, scene: Scene) -> list[str]:
    return _in_turn(engine, [scene.job, scene.other])


def _in_turn(engine: Engine, both: Sequence[T]) -> list[T]:
    """Give two things: to the right side in the opposite order."""
    return list(both if engine.actor == "left" else reversed(both))


def _ends(claims: Sequence[Claim]) -> list[Ask]:
    """Let one succeed and the other fail."""
    first, second = sorted(claims, key=lambda claim: claim.job_id)
    ended = {
        first.job_id: Ask(first.job_id, c.Complete(by=first.actor)),
        second.job_id: Ask(second.job_id, c.Fail(by=second.actor, error=Failure(code="oops"))),
    }
    return [ended[claim.job_id] for claim in claims]


def _batch(engine: Engine, scene: Scene) -> list[NewJob]:
    return _in_turn(engine, [NewJob("work", **_new(scene, word)) for word in KEYS])


def _mixed(engine: Engine, scene: Scene) -> list[NewJob]:
    """Give two new jobs, of which one waits for another: they are inserted one behind the other."""
    plain, waiting = _in_turn(engine, KEYS)
    return [NewJob("work", **_new(scene, plain)), NewJob("work", **_new(scene, waiting), after=[scene.job])]


def _page(scene: Scene) -> FeedPage:
    """Give a page that a consumer of whom nobody knew was given."""
    return FeedPage(
        consumer=scene.named("consumer"), records=(), caught_up=True, rev=0, seen=NOTHING, target=NOTHING, last=None
    )


def _consume(engine: Engine, scene: Scene) -> None:
    """Take what is there for the consumer, as often as somebody else was faster."""
    while True:
        page = engine.feed(scene.named("consumer"))
        with suppress(FeedConflictError):
            engine.acknowledge(page)
            scene.consumed.extend((record.job_id, record.version) for record in page.records)
            return


def _leave_a_trail(engine: Engine, scene: Scene) -> list[str]:
    """Claim a job of one's own, the only one that is due: the next claim begins where this one left off."""
    made = engine.enqueue("first", queue=scene.queue).job_id
    (claim,) = engine.claim(engine.actor, queues=[scene.queue])
    assert claim.job_id == made, "there was another job to be claimed"
    return [made]


@cache
def _exported(_: int, queue: str) -> tuple[str, list[str]]:
    """Give a job of another store, by its id and as the lines of an export."""
    with leftfold.open("sqlite:///:memory:", clock=FakeClock(), actor="elsewhere") as engine:
        job_id = engine.enqueue("work", queue=queue).job_id
        return job_id, list(engine.export_jobs())


def _found(engine: Engine) -> list[object]:
    """Give what is wrong with the store: nothing, whatever others are at."""
    verdict = engine.verify()
    return [*verdict.findings, *verdict.frozen]


def _fold(engine: Engine, scene: Scene) -> None:
    """Do what every so many writes do beside."""
    engine.store.run(StoreOperation(lambda: one("fold_counts", {"limit": 1000}), apart=True))


# fmt: off
OPERATIONS: Final = (
    # --- made by clients ----------------------------------------------------------------------------------------------
    Operation("enqueue, return the holder", "enqueue", "queued",
              lambda x, s: x.enqueue("work", **_new(s))),
    Operation("enqueue, raise", "enqueue", "dead-lettered",
              lambda x, s: x.enqueue("work", **_new(s), on_conflict="raise")),
    Operation("enqueue, skip", "enqueue", "dead-lettered",
              lambda x, s: x.enqueue("work", **_new(s), on_conflict="skip")),
    Operation("enqueue, replace", "enqueue", "queued",
              lambda x, s: x.enqueue("work", **_new(s), on_conflict="replace")),
    Operation("enqueue under a request", "enqueue", "queued",
              lambda x, s: x.enqueue("work", queue=s.queue, request_id=s.request, by="client")),
    Operation("enqueue under the request, another", "enqueue", "queued",
              lambda x, s: x.enqueue("rework", queue=s.queue, request_id=s.request, by="client")),
    Operation("enqueue after the job", "enqueue", "running",
              lambda x, s: x.enqueue("work", queue=s.queue, after=[s.job])),
    Operation("receive", "receive", "dead-lettered",
              lambda x, s: x.receive("work", queue=s.queue, key=s.key, on_conflict="raise")),
    Operation("admit", "admit", "inbox",
              lambda x, s: x.admit(s.job, policy=POLICY)),
    Operation("admit under another key", "admit", "inbox",
              lambda x, s: x.admit(s.job, job=NewJob("work", queue=s.queue, key=s.named("third")))),
    Operation("admit into a paused queue", "admit", "inbox",
              lambda x, s: x.admit(s.job, job=NewJob("work", queue=s.named("closed"), key=s.key))),
    # --- claims -------------------------------------------------------------------------------------------------------
    Operation("claim next", "claim", "queued",
              lambda x, s: x.claim(x.actor, queues=[s.queue]), passes_over=True),
    Operation("claim next under a request", "claim", "queued",
              lambda x, s: x.claim("worker", queues=[s.queue], request_id=s.request), passes_over=True),
    Operation("claim and start next", "claim", "queued",
              lambda x, s: x.claim(x.actor, queues=[s.queue], start=True), passes_over=True),
    Operation("claim next on its trail", "claim", "due soon",
              lambda x, s: x.claim(x.actor, queues=[s.queue]), passes_over=True, only_there=True,
              before=_leave_a_trail),
    Operation("claim by id", "claim", "queued",
              lambda x, s: x.claim(x.actor, job_id=s.job)),
    Operation("claim by id under a request", "claim", "stalled",
              lambda x, s: x.claim("worker", job_id=s.job, request_id=s.request)),
    # --- said by the owner --------------------------------------------------------------------------------------------
    Operation("start", "start", "claimed",
              lambda x, s: x.start(s.claim), owns=True),
    Operation("heartbeat", "heartbeat", "running",
              lambda x, s: x.heartbeat(s.claim), owns=True),
    Operation("heartbeat under a request", "heartbeat", "running",
              lambda x, s: x.heartbeat(s.claim, lease=100, request_id=f"beat of {x.actor}"), owns=True),
    Operation("complete", "complete", "running",
              lambda x, s: x.complete(s.claim, "done"), owns=True),
    Operation("complete under a request", "complete", "running",
              lambda x, s: x.complete(s.claim, "done", request_id=s.request), owns=True),
    Operation("fail", "fail", "running",
              lambda x, s: x.fail(s.claim, "oops"), owns=True),
    Operation("fail for good", "fail", "running",
              lambda x, s: x.fail(s.claim, "oops", permanent=True), owns=True),
    Operation("release", "release", "running",
              lambda x, s: x.release(s.claim), owns=True),
    Operation("suspend", "suspend", "running",
              lambda x, s: x.suspend(s.claim, "go"), owns=True),
    Operation("suspend until the other ends", "suspend", "running",
              lambda x, s: x.suspend(s.claim, "others", jobs=[s.other]), owns=True),
    Operation("note of the owner", "note", "running",
              lambda x, s: x.note(s.claim, PROGRESS), owns=True),
    Operation("cancel as the owner", "cancel_claim", "asked to stop",
              lambda x, s: x.cancel_claim(s.claim), owns=True),
    Operation("dead-letter as the owner", "dead_letter", "running",
              lambda x, s: x.dead_letter(s.claim, "beyond hope"), owns=True),
    # --- said by others -----------------------------------------------------------------------------------------------
    Operation("note under a request", "note", "running",
              lambda x, s: x.note(s.job, EVIDENCE, request_id=s.request, by="client")),
    Operation("stall", "stall", "running",
              lambda x, s: x.stall(s.job)),
    Operation("stall as the keeper", "stall", "running",
              lambda x, s: x.stall(s.job, by=KEEPER)),
    Operation("requeue", "requeue", "retrying",
              lambda x, s: x.requeue(s.job)),
    Operation("requeue as the keeper", "requeue", "stalled",
              lambda x, s: x.requeue(s.job, by=KEEPER)),
    Operation("reopen", "requeue", "dead-lettered",
              lambda x, s: x.requeue(s.job, reason="mended")),
    Operation("signal", "signal", "parked",
              lambda x, s: x.signal(s.job, "go", "yes")),
    Operation("signal otherwise", "signal", "waiting",
              lambda x, s: x.signal(s.job, "go", "no")),
    Operation("expire", "expire", "waiting",
              lambda x, s: x.expire(s.job)),
    Operation("resume", "resume", "waiting for the other",
              lambda x, s: x.resume(s.job)),
    Operation("complete the other", "complete", "waiting for the other",
              lambda x, s: x.complete(s.both[1], "done"), owns=True),
    Operation("cancel softly", "cancel", "running",
              lambda x, s: x.cancel(s.job)),
    Operation("cancel hard", "cancel", "running",
              lambda x, s: x.cancel(s.job, mode="hard")),
    Operation("cancel at a rev", "cancel", "queued",
              lambda x, s: x.cancel(s.job, expected_rev=3)),
    Operation("dead-letter", "dead_letter", "queued",
              lambda x, s: x.dead_letter(s.job, "set aside")),
    # --- queues -------------------------------------------------------------------------------------------------------
    Operation("pause", "pause", "queued",
              lambda x, s: x.pause(s.queue)),
    Operation("unpause", "unpause", "in a paused queue",
              lambda x, s: x.unpause(s.queue)),
    # --- the feed -----------------------------------------------------------------------------------------------------
    Operation("begin to consume", "feed", "queued",
              lambda x, s: x.feed(s.named("consumer"), start="now").consumer),
    Operation("consume", "feed", "followed",
              _consume, only_there=True),
    Operation("acknowledge", "acknowledge", "queued",
              lambda x, s: x.acknowledge(_page(s))),
    Operation("forget the consumer", "forget_consumer", "queued",
              lambda x, s: x.forget_consumer(s.named("consumer"))),
    # --- workers ------------------------------------------------------------------------------------------------------
    Operation("beat", "beat", "queued",
              lambda x, s: x.beat(s.named("worker"), {})),
    Operation("forget the worker", "forget_worker", "queued",
              lambda x, s: x.forget_worker(s.named("worker"))),
    Operation("fold the counters", "_write", "queued",
              _fold),
)

#: What speaks of all jobs of a store: played where only the scene's job is there to be found.
KEEPING: Final = (
    Operation("reap", "reap", "overdue",
              lambda x, _: x.reap(), passes_over=True),
    Operation("reap waits", "reap", "overdue wait",
              lambda x, _: x.reap(), passes_over=True),
    Operation("verify", "verify", "overdue",
              lambda x, _: _found(x)),
    Operation("import", "import_jobs", "overdue",
              lambda x, s: [x.import_jobs(_exported(s.number, s.queue)[1]), _exported(s.number, s.queue)[0]]),
    Operation("rebuild", "rebuild", "overdue",
              lambda x, s: x.rebuild(s.job, reason="to be sure")),
    # What has drifted is found at one moment, and frozen or mended at a later one: who has mended it in between by
    # writing the row anew leaves nothing to do; and counters are mended behind rows. So each tells one thing only.
    Operation("verify what has drifted", "verify", "drifted",
              lambda x, _: x.verify().frozen),
    Operation("rebuild what has drifted", "rebuild", "drifted and miscounted",
              lambda x, s: [found.what for found in x.rebuild(s.job, reason="it has drifted") if found.job_id]),
)

#: Batches about both jobs: the right side names them in the opposite order.
BATCHES: Final = (
    Operation("enqueue two, return", "enqueue_many", "both dead-lettered",
              lambda x, s: x.enqueue_many(_batch(x, s))),
    Operation("enqueue two, raise", "enqueue_many", "both dead-lettered",
              lambda x, s: x.enqueue_many(_batch(x, s), on_conflict="raise")),
    Operation("enqueue two, replace", "enqueue_many", "both queued",
              lambda x, s: x.enqueue_many(_batch(x, s), on_conflict="replace")),
    Operation("enqueue two, one of them after the job", "enqueue_many", "both dead-lettered",
              lambda x, s: x.enqueue_many(_mixed(x, s))),
    Operation("reopen both", "requeue_many", "both dead-lettered",
              lambda x, s: x.requeue_many(_ids(x, s), reason="mended"), by_job=True),
    Operation("remark on both", "remark_many", "both dead-lettered",
              lambda x, s: x.remark_many(_ids(x, s), "seen"), by_job=True),
    Operation("resolve both", "resolve_many", "both dead-lettered",
              lambda x, s: x.resolve_many(_ids(x, s), reason="known"), by_job=True),
    Operation("start both", "start_many", "claimed",
              lambda x, s: x.start_many(_in_turn(x, s.both)), by_job=True, owns=True),
    Operation("renew both", "heartbeat_many", "running",
              lambda x, s: x.heartbeat_many(_in_turn(x, s.both)), by_job=True, owns=True),
    Operation("complete both", "complete_many", "running",
              lambda x, s: x.complete_many([(claim, "done") for claim in _in_turn(x, s.both)]), by_job=True, owns=True),
    Operation("fail both", "fail_many", "running",
              lambda x, s: x.fail_many([(claim, "oops") for claim in _in_turn(x, s.both)]), by_job=True, owns=True),
    Operation("settle both", "settle_many", "running",
              lambda x, s: x.settle_many(_ends(_in_turn(x, s.both))), by_job=True, owns=True),
    Operation("settle both quietly", "settle_quietly", "running",
              lambda x, s: x.settle_quietly(_ends(_in_turn(x, s.both))), by_job=True, owns=True),
    Operation("release both", "release_many", "running",
              lambda x, s: x.release_many(_in_turn(x, s.both)), by_job=True, owns=True),
    Operation("suspend both", "suspend_many", "running",
              lambda x, s: x.suspend_many(_in_turn(x, s.both), "go"), by_job=True, owns=True),
    Operation("note on both", "note_many", "running",
              lambda x, s: x.note_many([(claim, PROGRESS) for claim in _in_turn(x, s.both)]), by_job=True, owns=True),
)
# fmt: on
