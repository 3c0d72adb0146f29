"""`leftfold queues`: how full they are, and how they are stopped."""

import re

from tests.e2e.homes import Home

from leftfold.core.lifecycle import State


def test_queues_are_listed_with_the_states_of_their_jobs(home: Home) -> None:
    with home.open() as engine:
        for _ in range(3):
            engine.enqueue("a", queue="slow")
        engine.enqueue("b", queue="fast")
        (claim,) = engine.claim("worker-a", queues=["slow"])
        engine.start(claim)
    fast, slow = home.run("queues", "list", "--json").lines()
    assert fast == {
        "name": "fast", "paused_at": None, "paused_by": None, "reason": None,
        "jobs": {**dict.fromkeys((state.value for state in State), 0), "queued": 1},
    }  # fmt: skip
    assert {state: jobs for state, jobs in slow["jobs"].items() if jobs} == {"queued": 2, "running": 1}
    assert home.run("queues", "list").out.splitlines() == [
        "queue  queued  running",
        "fast   1       ·",
        "slow   2       1",
    ]


def test_without_a_queue_there_is_nothing_to_list(home: Home) -> None:
    assert home.run("queues", "list") == (0, "", "no queues\n")
    assert home.run("queues", "list", "--json") == (0, "", "")


def test_a_paused_queue_gives_nothing_away_until_it_goes_on(home: Home) -> None:
    home.run("enqueue", "a", "--queue", "slow")
    assert home.run("queues", "pause", "slow", "--reason", "too\x1b[1m slow") == (0, "slow is paused\n", "")
    assert home.run("queues", "pause", "slow", "--reason", "again") == (0, "slow was paused already\n", "")
    (queue,) = home.run("queues", "list", "--json").lines()
    assert (queue["paused_by"], queue["reason"]) == ("tester", "too\x1b[1m slow")
    assert queue["paused_at"] > 1_700_000_000_000_000
    told = home.run("queues", "list").out
    assert re.search(r"  paused .* by tester: too\\x1b\[1m slow$", told, re.MULTILINE)
    with home.open() as engine:
        assert engine.claim("worker-a") == []
    assert home.run("queues", "resume", "slow") == (0, "slow goes on\n", "")
    assert home.run("queues", "resume", "slow") == (0, "slow was not paused\n", "")
    with home.open() as engine:
        assert len(engine.claim("worker-a")) == 1


def test_as_json(home: Home) -> None:
    asked = [("pause", "--actor", "bob"), ("pause",), ("resume",), ("resume",)]
    assert [home.run("queues", verb, "q", *more, "--json").json() for verb, *more in asked] == [
        {"name": "q", "paused": True, "changed": True},
        {"name": "q", "paused": True, "changed": False},
        {"name": "q", "paused": False, "changed": True},
        {"name": "q", "paused": False, "changed": False},
    ]
