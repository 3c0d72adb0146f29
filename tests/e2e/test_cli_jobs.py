"""`leftfold jobs`: lists, one job, and its history, as people and as programs read them."""

import re
from typing import Any

import pytest
from tests.e2e.command import complaint
from tests.e2e.homes import Home

from leftfold import NewJob, Policy, Summary
from leftfold.core import events as e
from leftfold.core.lifecycle import State
from leftfold.dialects import DIALECTS

ESCAPE = "\x1b"
SUMMARY = [*Summary.__struct_fields__]


def one_of_each(home: Home) -> dict[str, str]:
    """Bring a job into every state, and give their ids."""
    ids: dict[str, str] = {}
    with home.open() as engine:

        def claimed(kind: str, **job: Any) -> Any:
            ids[kind] = engine.enqueue(kind, {"of": kind}, **job).job_id
            (claim,) = engine.claim("worker-a", kinds=[kind])
            return claim

        def started(kind: str, **job: Any) -> Any:
            claim = claimed(kind, **job)
            engine.start(claim)
            return claim

        ids["inbox"] = engine.receive("inbox").job_id
        ids["queued"] = engine.enqueue("queued", due=3600, key="order:1", correlation_id="c 1", tenant="acme").job_id
        claim = started("retrying")
        engine.note(claim, e.Progress(fraction=0.4, message="halfway"))
        engine.fail(claim, f"no route to host{ESCAPE}]0;\a")
        claimed("claimed")
        started("running", queue="slow", priority=5)
        engine.suspend(started("waiting"), "approved", deadline=86_400)
        engine.suspend(started("parked"), "approved")
        engine.stall(started("stalled").job_id, reason="switched off")
        engine.complete(started("succeeded"), {"ok": True})
        engine.fail(started("failed", policy=Policy(max_failures=1, on_exhausted="fail")), ValueError("no"))
        ids["cancelled"] = engine.enqueue("cancelled").job_id
        engine.cancel(ids["cancelled"], reason="no longer needed")
        engine.fail(started("dead_lettered", policy=Policy(max_failures=1)), "broken")
    return ids


def test_every_state_can_be_listed_shown_and_read(home: Home) -> None:
    ids = one_of_each(home)
    listed = {job["id"]: job for job in home.run("jobs", "list", "--json").lines()}
    assert {job["kind"]: job["state"] for job in listed.values()} == {state.value: state.value for state in State}
    assert all([*job] == SUMMARY for job in listed.values())
    shown = home.run("jobs", "list")
    assert (shown.code, shown.err) == (0, "")
    for state, job_id in ids.items():
        assert re.search(rf"^{job_id}  {state} +{state} ", shown.out, re.MULTILINE), state
    for job_id in ids.values():
        described = home.run("jobs", "show", job_id, "--json").json()
        assert {name: described[name] for name in SUMMARY} == listed[job_id]
        assert [*described] == [
            *SUMMARY, "cause", "payload", "result", "error", "last_error", "wait", "answers", "policy",
        ]  # fmt: skip
    for state in ("inbox", "retrying", "running", "parked", "stalled"):
        for command in ("show", "history"):
            ran = home.run("jobs", command, ids[state])
            assert (ran.code, ran.err) == (0, "")
            assert ESCAPE not in ran.out


def test_the_list_by_everything_it_can_be_asked_by(home: Home) -> None:
    one_of_each(home)

    def kinds(*asked: str) -> set[str]:
        return {job["kind"] for job in home.run("jobs", "list", "--json", *asked).lines()}

    assert kinds("--state", "queued") == {"queued"}
    assert kinds("--state", "failed", "--state", "dead_lettered") == {"failed", "dead_lettered"}
    assert kinds("--queue", "slow") == {"running"}
    assert kinds("--kind", "parked") == {"parked"}
    assert kinds("--tenant", "acme") == {"queued"}
    assert kinds("--key", "order:1") == {"queued"}
    assert kinds("--correlation-id", "c 1") == {"queued"}
    assert kinds("--owner", "worker-a") == {"claimed", "running"}
    assert kinds("--kind", "nothing") == set()


def test_an_empty_list_is_no_failure(home: Home) -> None:
    assert home.run("jobs", "list") == (0, "", "no such jobs\n")
    assert home.run("jobs", "list", "--json") == (0, "", "")


def test_a_list_is_given_in_pages_or_as_a_whole(home: Home) -> None:
    with home.open() as engine:
        ids = [receipt.job_id for receipt in engine.enqueue_many(NewJob("k") for _ in range(1234)) if receipt][::-1]
    first = home.run("jobs", "list", "--json", "--limit", "2")
    assert [job["id"] for job in first.lines()] == ids[:2]
    assert first.err == f"there are more: --after {ids[1]}, or --all\n"
    second = home.run("jobs", "list", "--json", "--limit", "3", "--after", ids[1])
    assert [job["id"] for job in second.lines()] == ids[2:5]
    assert len(home.run("jobs", "list", "--json").lines()) == 100
    whole = home.run("jobs", "list", "--json", "--all")
    assert [job["id"] for job in whole.lines()] == ids
    assert whole.err == ""
    rest = home.run("jobs", "list", "--json", "--all", "--after", ids[1000])
    assert [job["id"] for job in rest.lines()] == ids[1001:]


def test_a_terminal_gets_short_ids_that_name_their_jobs(file_home: Home) -> None:
    ids = one_of_each(file_home)
    shown = file_home.watched("jobs", "list", NO_COLOR="1").out.splitlines()
    assert shown[0].split()[:4] == ["id", "state", "kind", "queue"]
    short = {line.split()[1]: line.split()[0] for line in shown[1:]}
    assert short.keys() == ids.keys()
    for state, job_id in ids.items():
        assert job_id.startswith(short[state])
        assert len(short[state]) < 36
    alone = file_home.watched("jobs", "list", "--kind", "running", NO_COLOR="1").out.splitlines()[1].split()[0]
    for named in (short["running"], alone):
        assert file_home.run("jobs", "show", named, "--json").json()["id"] == ids["running"]


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_table_fits_the_terminal(file_home: Home, columns: int) -> None:
    ids = one_of_each(file_home)
    for command in (["jobs", "list"], ["queues", "list"]):
        lines = file_home.watched(*command, NO_COLOR="1", columns=columns).out.splitlines()
        assert len(lines) > 2
        if command == ["jobs", "list"] and columns >= 80:
            assert max(map(len, lines)) <= columns
    history = file_home.watched("jobs", "history", ids["retrying"], NO_COLOR="1", columns=columns).out.splitlines()
    assert len(history) == 6
    if columns >= 80:
        assert max(map(len, history)) <= columns


def test_a_job_by_any_spelling_of_its_id(home: Home) -> None:
    job_id = home.run("enqueue", "refund").out.strip()
    for spelled in (job_id.upper(), job_id.replace("-", ""), job_id[:35], job_id.replace("-", "")[:13], job_id[:9]):
        assert home.run("jobs", "show", spelled, "--json").json()["id"] == job_id, spelled
        assert home.run("jobs", "history", spelled, "--json").json()["job_id"] == job_id, spelled


def test_a_beginning_that_two_jobs_share_is_refused(home: Home) -> None:
    first, second = (home.run("enqueue", "refund").out.strip() for _ in range(2))
    shared = next(first[:length] for length in range(36, 0, -1) if second.startswith(first[:length]))
    ran = home.run("jobs", "show", shared)
    assert (ran.code, ran.out) == (2, "")
    assert "more than one" in complaint(ran)


def test_a_job_in_full(home: Home) -> None:
    ids = one_of_each(home)
    retrying = home.run("jobs", "show", ids["retrying"], "--json").json()
    assert retrying["payload"] == {"of": "retrying"}
    assert retrying["error"] == {
        "code": "error", "message": "no route to host␛]0;␇", "type": None, "traceback": None, "details": None,
    }  # fmt: skip
    assert retrying["policy"]["max_failures"] == 5
    assert home.run("jobs", "show", ids["succeeded"], "--json").json()["result"] == {"ok": True}
    waiting = home.run("jobs", "show", ids["waiting"], "--json").json()["wait"]
    assert (waiting["until"], waiting["key"]) == ("signal", "approved")
    facts = dict(re.findall(r"^(\w+(?: \w+)?)  +(.*)$", home.run("jobs", "show", ids["retrying"]).out, re.MULTILINE))
    assert facts["id"] == ids["retrying"]
    assert facts["state"] == "retrying"
    assert facts["payload"] == '{"of": "retrying"}'
    assert facts["attempts"] == "1, failures 1 of 5"
    assert facts["error"] == "error: no route to host␛]0;␇"


def test_json_is_one_line_whatever_the_payload_looks_like(home: Home) -> None:
    job_id = home.run("enqueue", "refund", '{\n  "a": [1,\n 2.50, "\\n"]\n}').out.strip()
    for command in ("show", "history"):
        ran = home.run("jobs", command, job_id, "--json")
        assert ran.out.count("\n") == 1
        assert '{"a":[1,2.50,"\\n"]}' in ran.out


def test_a_history_has_a_line_per_event(home: Home) -> None:
    ids = one_of_each(home)
    records = home.run("jobs", "history", ids["retrying"], "--json").lines()
    assert [record["event"] for record in records] == ["enqueued", "claimed", "started", "progress", "retried"]
    assert [record["version"] for record in records] == [1, 2, 3, 4, 5]
    assert [record["who"] for record in records] == ["client", "worker", "owner", "owner", "owner"]
    assert [*records[0]] == [
        "job_id", "version", "at", "event", "who", "actor", "request_id", "format", "data",
    ]  # fmt: skip
    assert records[3]["data"] == {"fraction": 0.4, "message": "halfway"}
    head, *lines = home.run("jobs", "history", ids["retrying"]).out.splitlines()
    assert head.split() == ["time", "event", "by", "data"]
    assert all(re.match(r"\d  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z ", line) for line in lines)
    told = [re.split(r"  +", line)[-3:] for line in lines]
    assert told[0] == ["enqueued", "client ann", 'retrying in default {"of": "retrying"}']
    assert told[1] == ["claimed", "worker worker-a", "attempt 1"]
    assert told[2][-2:] == ["started", "owner worker-a"]
    assert told[3] == ["progress", "owner worker-a", "40%, halfway"]
    assert told[4][0] == "retried"
    assert told[4][2].startswith("error: no route to host␛]0;␇, due in ")


def test_what_each_end_says(file_home: Home) -> None:
    ids = one_of_each(file_home)
    last = {state: file_home.run("jobs", "history", ids[state]).out.splitlines()[-1] for state in ids}
    assert last["stalled"].endswith("operator ann     switched off, owner worker-a")
    assert last["cancelled"].endswith("no longer needed, soft")
    assert last["succeeded"].endswith('{"ok": true}')
    assert last["waiting"].endswith("for signal approved, deadline in 1d")
    assert last["failed"].endswith("error: no (ValueError)")
    assert last["dead_lettered"].endswith("error: broken, exhausted_retries, stage exec")


@pytest.mark.parametrize("name", DIALECTS)
def test_a_job_and_its_history_in_the_words_of_a_dialect(file_home: Home, name: str) -> None:
    ids, dialect = one_of_each(file_home), DIALECTS[name]
    with file_home.open() as engine:
        steps = dialect.project(engine.history(ids["retrying"]))
    called = file_home.run("jobs", "show", ids["retrying"], "--dialect", name, "--json").json()["dialect"]
    assert called.pop("runs", None) == ([{"attempt": 1, "status": "failed"}] if dialect.has_runs else None)
    assert called == {
        "name": name,
        "state": dialect.names[State.RETRYING],
        "stand_in": State.RETRYING in dialect.stand_ins,
    }
    lines = file_home.run("jobs", "history", ids["retrying"], "--dialect", name, "--json").lines()
    assert [line["dialect"] for line in lines if line["event"] != "progress"] == [
        {"name": name, "event": step.move.event, "from": step.move.source, "to": step.move.target, "ours": step.ours}
        for step in steps
    ]
    assert [line["dialect"] for line in lines if line["event"] == "progress"] == [None]
    told = file_home.run("jobs", "history", ids["retrying"], "--dialect", name).out
    assert "(progress)" in told
    for step in steps:
        assert f"{step.move.event}{'*' * step.ours}" in told if step.move.event else "  —  " in told
    assert (
        f"retrying, {name}: {dialect.names[State.RETRYING]}"
        in file_home.run("jobs", "show", ids["retrying"], "--dialect", name).out
    )


def test_a_log_that_was_tampered_with_is_refused(home: Home) -> None:
    ids = one_of_each(home)
    with home.open() as engine:
        assert engine.history(ids["queued"])
    home.tamper("UPDATE {schema}.events SET at = at + 1 WHERE version = 3")
    for command in ("show", "history"):
        ran = home.run("jobs", command, ids["running"])
        assert (ran.code, ran.out) == (1, "")
        assert complaint(ran).startswith("leftfold: broken_chain: ")
        assert f"; `leftfold verify --job {ids['running']}` says what is wrong" in ran.err
        assert home.run("jobs", command, ids["queued"]).code == 0


@pytest.mark.parametrize("command", [["jobs", "list"], ["jobs", "show"], ["jobs", "history"]], ids=" ".join)
def test_a_terminal_gets_colours_and_others_do_not(file_home: Home, command: list[str]) -> None:
    ids = one_of_each(file_home)
    asked = [*command, *([] if command[-1] == "list" else [ids["running"]])]
    assert f"{ESCAPE}[" in file_home.watched(*asked).out
    assert ESCAPE not in file_home.watched(*asked, NO_COLOR="1").out
    assert ESCAPE not in file_home.run(*asked).out
