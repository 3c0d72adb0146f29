"""The campaign's checker, with histories that are bad in one way each: it names the rule that was broken."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from chaos.checker import RULES, violations
from chaos.history import CLOSED, ENDED, MOVES, NOTES, TRANSITIONS, Event, read_export
from chaos.of_handlers import late
from chaos.story import Row
from tests.chaos.histories import LEASE, Past, asked, claimed, failed, good, log_of, made, worked

from leftfold.core import events, lifecycle
from leftfold.core.lifecycle import TABLE


class Bad(NamedTuple):
    """What is done to the good history, and which rules that breaks."""

    name: str
    bend: Callable[[Past], Any]
    rules: str


def forget(past: Past, job: str) -> None:
    """Lose a job, and all that was recorded of its attempts and of looks at it."""
    del past.logs[job]
    past.records[:] = [each for each in past.records if each.get("job") != job]
    for each in past.records:
        each["seen"] = [seen for seen in each.get("seen", ()) if seen[0] != job]


def copy(past: Past, job: str, other: str) -> None:
    """Let a job be there twice."""
    past.logs[other] = list(past.logs[job])
    past.records.extend(
        {**each, "job": other, **({"key": f"{other}:effect"} if "key" in each else {})}
        for each in list(past.records)
        if each.get("job") == job and each["what"] in {"begins", "ends"}
    )


def stranger(past: Past) -> None:
    """Add a job that no record speaks of but its handler's."""
    past.logs["stranger"] = log_of(
        "c-99.0", "plain", 0, *claimed("w1"), ("succeeded", "owner", "w1", {"result": {"attempt": 1}})
    )
    past.records.extend(worked("stranger", 1, 700, 710))


def last_word(past: Past, op: str, *words: str) -> None:
    """Say this in the place of what a client was told."""
    told = past.record("told", op=op)
    past.records.remove(told)
    past.records.extend({**told, "what": word, "at": told["at"] + 2 * n} for n, word in enumerate(words))


def made_twice(past: Past) -> None:
    """Let a request that was asked again make a job each time."""
    copy(past, "flaky", "other")
    last_word(past, "c-1", "unknown")


def answered_twice(past: Past) -> None:
    """Let a request that was asked again be answered with another job, and then with its own."""
    past.records.extend(made(12, "c-1", "one", "asks", "flaky"))
    past.records.extend(made(14, "c-1", "one", "flaky", "flaky"))


def steal(past: Past) -> None:
    """Let a second owner in while the first one holds the job, and let him end it."""
    first, second = claimed("w2")
    past.insert("again", 4, *first[:3])
    past.insert("again", 5, *second[:3])
    past.change("again", 6, data={"result": {"attempt": 2}})
    past.records.extend(worked("again", 2, 620, 630))


def run_on(past: Past) -> None:
    """Give a job that failed for the last time another attempt."""
    for version in (10, 11):
        past.change("poison", version, at=20_000_000)
    past.change("poison", 11, event="retried", data={"error": {"code": "crashed", "message": "SIGKILL"}})
    for name, who, actor, data, *_ in (*claimed("w2"), ("cancelled", "client", "client-0", {"mode": "hard"})):
        past.insert("poison", len(past.logs["poison"]) + 1, name, who, actor, **data)
    past.records.extend(worked("poison", 4, 530, None))


def pass_off(past: Past) -> None:
    """Lose a job, and give another one of its kind, which has no key either, for it."""
    past.logs["other"] = log_of(
        "c-11.0", "flaky", 0, *claimed("w1"), ("succeeded", "owner", "w1", {"result": {"attempt": 1}})
    )
    past.records.extend([*made(15, "c-11", "one", "other", "flaky"), *worked("other", 1, 700, 710)])
    forget(past, "flaky")
    past.record("told", op="c-1")["jobs"] = ["other"]


def say_last(past: Past, job: str, name: str, who: str, **data: Any) -> None:
    """Put a word behind the end of a job."""
    past.insert(job, len(past.logs[job]) + 1, name, who, who, **data)


def tell(past: Past, op: str, at: int, what: str, **changes: Any) -> None:
    """Ask once more for what was asked for, and be answered so."""
    again = [past.record("asks", op=op), past.record("told", op=op)]
    past.records.extend([{**again[0], "at": at}, {**again[1], "at": at + 1, "what": what, **changes}])


def release(past: Past) -> None:
    """Give a job back whose handler had returned, and let it succeed the next time."""
    past.change("flaky", 4, event="released", data={"reason": "the worker left"})
    past.record("ends", job="flaky", attempt=1)["how"] = "returned"


def reject(past: Past) -> None:
    """Set a job aside after its first attempt, for a reason that none of ours has."""
    error = {"code": "error", "type": "RuntimeError", "message": "attempt 1"}
    past.drop("flaky", 5, 6, 7)
    past.change("flaky", 4, event="dead_lettered", data={"reason_code": "policy_violation", "error": error})
    past.records[:] = [each for each in past.records if (each.get("job"), each.get("attempt")) != ("flaky", 2)]


def change_kind(past: Past, job: str, op: str, kind: str) -> None:
    """Let a job be of another kind, as it was asked for."""
    data = past.logs[job][0].data
    past.change(job, 1, data={**data, "spec": {**data["spec"], "kind": kind}})
    past.record("asks", op=op)["new"][0]["kind"] = kind


def expire(past: Past) -> None:
    """Let a signal come before the wait, and let the wait run out all the same."""
    past.insert("asks", 4, "signalled", "client", "client-0", key="go", payload="go")
    past.change("asks", 4, request_id="c-7")
    past.change("asks", 6, who="keeper", actor="w2", data={"key": "go", "expired": True}, request_id=None)
    past.record("told", op="c-7")["seen"] = [["asks", 4, "running"]]


BAD = (
    Bad("an acknowledged job is gone", lambda past: forget(past, "flaky"), "lost"),
    Bad("an acknowledged job is gone, and another one is named for it", pass_off, "lost"),
    Bad("it has another key than was asked for", lambda past: past.record("asks", op="c-6")["new"][0].update(key="k"),
        "lost"),
    Bad("it is of another kind than was asked for",
        lambda past: past.record("asks", op="c-1")["new"][0].update(kind="plain"), "lost"),
    Bad("a batch comes back short", lambda past: past.record("asks", op="c-1")["new"].append({"kind": "plain"}),
        "lost"),
    Bad("a job that nobody asked for", stranger, "unexpected"),
    Bad("a job whose making was refused", lambda past: last_word(past, "c-1", "refused"), "unexpected"),
    Bad("a job where the store said that nothing was written", lambda past: last_word(past, "c-1", "failed"),
        "unexpected"),
    Bad("the answer names another job", lambda past: past.record("told", op="c-1").update(jobs=["again"]),
        "lost unexpected"),
    Bad("one request made two jobs", made_twice, "twice"),
    Bad("one request was answered twice, each time otherwise", answered_twice, "lost twice"),
    Bad("what was asked for again was answered with another version",
        lambda past: tell(past, "c-3", 35, "told", seen=[["asks", 3, "running"]]), "twice"),
    Bad("what was answered is refused when it is asked for again", lambda past: tell(past, "c-3", 35, "refused"),
        "twice"),
    Bad("a cancellation changed something twice", lambda past: tell(past, "c-8", 85, "told"), "twice"),
    Bad("a signal changed something twice", lambda past: tell(past, "c-7", 75, "told"), "twice"),
    Bad("a cancellation that was answered is refused when it is asked for again",
        lambda past: tell(past, "c-8", 85, "refused", code="job_ended"), "twice"),
    Bad("a key was given away while its job lived", lambda past: past.change("again", 1, at=2_000_000), "one_per_key"),
    Bad("a key was given away a moment before its job ended", lambda past: past.change("again", 1, at=4_500_000),
        "one_per_key"),
    Bad("a version is missing", lambda past: past.logs["lost"].pop(7), "gapless"),
    Bad("a version is there twice", lambda past: past.change("lost", 9, version=8), "gapless"),
    Bad("a time falls", lambda past: past.change("flaky", 5, at=1), "gapless"),
    Bad("a move that the lifecycle lacks", lambda past: past.insert("flaky", 5, "resumed", "client", "c", key="go"),
        "legal"),
    Bad("a final job goes on", lambda past: past.insert("again", 5, "requeued", "operator", "o"), "legal ended"),
    Bad("a signal behind the end", lambda past: say_last(past, "again", "signalled", "client", key="go"), "legal"),
    Bad("a request to cancel behind the end", lambda past: say_last(past, "again", "cancel_requested", "client"),
        "legal"),
    Bad("a worker speaks of a dead letter", lambda past: say_last(past, "poison", "starved", "worker"), "legal"),
    Bad("an operator speaks of what is final", lambda past: say_last(past, "again", "remarked", "operator"), "legal"),
    Bad("a note that is somebody else's", lambda past: past.insert("again", 4, "remarked", "client", "c"), "legal"),
    Bad("an event that nobody knows", lambda past: past.insert("again", 4, "improved", "owner", "w2"), "legal"),
    Bad("a move that is somebody else's", lambda past: past.change("lost", 5, who="client"), "legal"),
    Bad("two owners at once", steal, "one_owner legal"),
    Bad("a lease was taken before it was over", lambda past: past.change("lost", 4, at=3_400_000), "one_owner"),
    Bad("a renewed lease was taken before it was over",
        lambda past: past.change("lost", 4, data={"owner": "w1", "lease_until": 3_700_000}), "one_owner"),
    Bad("a job was taken from who had it not",
        lambda past: past.change("lost", 4, data={"owner": "w3", "lease_until": 1_500_000 + LEASE}), "one_owner"),
    Bad("the owner that had lost it completes it", lambda past: past.change("lost", 9, actor="w1"), "stale"),
    Bad("the attempt that had lost it completes it",
        lambda past: past.change("lost", 9, data={"result": {"attempt": 1}}), "stale"),
    Bad("the attempt that had lost it says how far it is",
        lambda past: past.change("lost", 8, data={"fraction": 0.5, "message": "attempt 1"}), "stale"),
    Bad("the attempt that had lost it fails it", lambda past: past.change("flaky", 4, data=failed(2)), "stale"),
    Bad("an owner speaks of a job that nobody holds",
        lambda past: past.insert("lost", 6, "progress", "owner", "w1", fraction=0.5), "stale"),
    Bad("an attempt behind the last failure", run_on, "budget"),
    Bad("exhausted before the last failure", lambda past: past.change("poison", 8, event="released", data={}),
        "budget"),
    Bad("a cancelled job is tried again",
        lambda past: past.insert("flaky", 4, "cancel_requested", "client", "client-0"), "cancelling"),
    Bad("a request stands on a log twice", lambda past: past.change("asks", 3, request_id="c-7"), "one_request"),
    Bad("a wait is answered by a signal, and then by its deadline", expire, "one_answer"),
    Bad("a wait is answered by two signals",
        lambda past: past.insert("asks", 6, "signalled", "client", "c", key="go", payload="go"), "one_answer"),
    Bad("a dead letter after one attempt that failed of nothing known", reject, "endings"),
    Bad("a kind that never fails by itself does", lambda past: change_kind(past, "flaky", "c-1", "plain"), "endings"),
    Bad("poison succeeds", lambda past: change_kind(past, "again", "c-6", "poison"), "endings"),
    Bad("a job is closed as failed, although its policy sets it aside",
        lambda past: past.change("poison", 11, event="failed", data={"error": {"code": "crashed"}}), "endings"),
    Bad("an attempt with two effects", lambda past: past.records.extend(worked("again", 1, 601, None)), "one_effect"),
    Bad("an effect without a start", lambda past: past.records.extend(worked("again", 2, 620, None)), "one_effect"),
    Bad("an effect before the start", lambda past: past.record("begins", job="again").update(wall=9_400_000),
        "one_effect"),
    Bad("an effect with the key of another job",
        lambda past: past.record("begins", job="again").update(key="lost:effect"), "one_effect"),
    Bad("success without an end of the handler",
        lambda past: past.records.remove(past.record("ends", job="again")), "done"),
    Bad("success of a handler that raised",
        lambda past: past.record("ends", job="again").update(how="RuntimeError"), "done"),
    Bad("a job is given back although its handler had returned", release, "kept"),
    Bad("a job fails although its handler had returned",
        lambda past: past.record("ends", job="flaky", attempt=1).update(how="returned"), "kept"),
    Bad("a handler was told that time was up, and the log has an answer",
        lambda past: past.record("heard", job="asks").update(expired=True, answer=None), "heard"),
    Bad("a handler was told another answer", lambda past: past.record("heard", job="asks").update(answer="stop"),
        "heard"),
    Bad("a handler was told an answer before there was one",
        lambda past: past.record("heard", job="asks").update(attempt=0), "heard"),
    Bad("two handlers at once, and none had lost the job",
        lambda past: past.record("ends", job="flaky", attempt=1).update(at=125), "alone"),
    Bad("an acknowledged cancellation is not on the log",
        lambda past: past.drop("stopped", 4), "acknowledged seen"),
    Bad("an acknowledged signal is another one's", lambda past: past.change("asks", 5, request_id="c-99"),
        "acknowledged"),
    Bad("a hard cancellation only asks", lambda past: past.record("asks", op="c-8").update(mode="hard"),
        "acknowledged"),
    Bad("a cancellation that changed nothing, and is nowhere",
        lambda past: past.records.extend(asked(95, "c-10", "cancel", {"seen": [], "changed": False}, job="flaky",
                                               mode="soft")), "acknowledged"),
    Bad("what was shown was taken back",
        lambda past: past.record("told", op="c-9").update(seen=[["lost", 10, "queued"]]), "seen"),
    Bad("what was shown never was", lambda past: past.record("told", op="c-9").update(seen=[["lost", 3, "waiting"]]),
        "seen"),
    Bad("a client sees an older version than it has seen",
        lambda past: past.records.extend(asked(95, "c-10", "get", {"seen": [["lost", 2, "claimed"]]}, job="lost")),
        "forward"),
    Bad("a job that never ends", lambda past: past.drop("stopped", 5), "ended"),
    Bad("a row that is not what its log comes to",
        lambda past: past.rows.update(flaky=Row("succeeded", 7, 2, 0)), "row"),
    Bad("a row without a log", lambda past: past.rows.update(other=Row("queued", 1, 0, 0)), "row"),
    Bad("verify found something", lambda past: past.findings.append("verify: chain"), "verified"),
)  # fmt: skip


def test_the_good_history_breaks_no_rule() -> None:
    assert violations(good().story()) == []


def test_the_handler_that_came_back_late_is_counted() -> None:
    assert late(good().story()) == 1


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_history_breaks_the_rule_that_it_is_for(bad: Bad) -> None:
    past = good()
    bad.bend(past)
    found = violations(past.story())
    assert {each.rule for each in found} == set(bad.rules.split()), found


def test_every_rule_has_a_history_that_breaks_it_and_says_what_it_asks_for() -> None:
    assert {rule.__name__ for rule in RULES} <= {rule for bad in BAD for rule in bad.rules.split()}
    assert all(rule.__doc__ for rule in RULES)


@pytest.mark.parametrize("words", [("unknown",), ("unknown", "asks", "failed"), ()], ids=" ".join)
def test_where_the_answer_was_lost_the_job_may_be_there_or_not(words: tuple[str, ...]) -> None:
    past = good()
    last_word(past, "c-1", *words)
    assert violations(past.story()) == []
    forget(past, "flaky")
    assert violations(past.story()) == []


def test_the_checkers_table_written_by_hand_is_the_one_of_the_lifecycle() -> None:
    theirs = {
        (source or "", rule.event.wire): (rule.target.value, frozenset(rule.who))
        for rule in TABLE
        for source in rule.sources
    }
    assert {edge: (target, frozenset(who)) for edge, (target, who) in MOVES.items()} == theirs
    assert {rule.event.wire for rule in TABLE} == TRANSITIONS
    assert (ENDED, CLOSED) == (lifecycle.ENDED, lifecycle.CLOSED)
    assert set(NOTES) == {note.wire for note in events.NOTES}
    assert {name for name, who in NOTES.items() if who == ("owner",)} == {
        note.wire for note in events.NOTES if issubclass(note, events.OwnersNote)
    }
    assert {name for name, who in NOTES.items() if who == ("operator",)} == {
        note.wire for note in events.NOTES if issubclass(note, events.OperatorsNote)
    }


def test_operators_may_speak_of_closed_jobs() -> None:
    past = good()
    say_last(past, "poison", "remarked", "operator", text="known")
    say_last(past, "poison", "resolved", "operator", reason="known")
    assert violations(past.story()) == []


def test_asked_again_a_cancellation_is_told_where_the_job_stands_and_a_new_job_what_was_told_before() -> None:
    past = good()
    tell(past, "c-8", 85, "told", seen=[["stopped", 5, "cancelled"]], changed=False)
    past.records.extend(asked(86, "c-10", "get", {"seen": [["stopped", 5, "cancelled"]]}, job="stopped"))
    tell(past, "c-4", 87, "told")
    assert violations(past.story()) == []


def test_whoever_was_told_to_stop_or_was_killed_before_his_word_may_return_for_nothing() -> None:
    past = good()
    release(past)
    past.record("ends", job="flaky", attempt=1)["stopped"] = True
    assert violations(past.story()) == []
    past = good()
    past.change("flaky", 4, data={"error": {"code": "crashed", "message": "SIGKILL"}})
    past.record("ends", job="flaky", attempt=1)["how"] = "returned"
    past.record("begins", job="flaky", attempt=1)["isolated"] = True
    assert violations(past.story()) == []


def test_a_claim_that_starts_its_job_is_read_as_the_two_events_that_it_says() -> None:
    entry = {
        "version": 3,
        "at": 7,
        "event": "claimed+started",
        "actor": "w",
        "data": '{"token":"t"}',
        "request_id": "r",
    }
    line = json.dumps({"is": "job", "id": "job", "log": [entry]})
    claimed, started = read_export([line])["job"]
    assert claimed == Event(2, 7, "claimed", "worker", "w", {"token": "t"}, "r")
    assert started == Event(3, 7, "started", "owner", "w", {}, None)
