"""The model checker: it finds nothing in the engine as it is, and it finds what is planted."""

import os
from typing import Any

import pytest

from leftfold.core import commands as c
from leftfold.core.decide import Applied, apply
from leftfold.core.job import Job
from leftfold.core.lifecycle import EDGES, State, Who
from leftfold.dialects import DIALECTS
from leftfold.proof import search as searching
from leftfold.proof.parallel import search_all
from leftfold.proof.search import DEFAULT_SCOPES, Found, search
from leftfold.proof.verdict import Verdict, prove
from leftfold.proof.world import Scope


def test_the_smallest_scope_holds() -> None:
    found = search(Scope(1, 1, 1))
    assert found.violation is None
    assert found.waiting == 0


#: The scopes that the command takes by itself cost three times as much: `make model` and `make soak` search those.
SCOPES = DEFAULT_SCOPES if os.environ.get("LEFTFOLD_MODEL") == "all" else (Scope(1, 2, 3), Scope(2, 1, 2))


@pytest.mark.timeout(900)
def test_the_scopes_hold_and_take_every_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftfold.proof.verdict.DEFAULT_SCOPES", SCOPES)
    verdict = prove()
    assert verdict.violations == 0, verdict.describe()
    assert {found.scope for found in verdict.found} == set(SCOPES)
    assert verdict.states >= (100_000 if SCOPES == DEFAULT_SCOPES else 30_000)
    assert frozenset().union(*(found.edges for found in verdict.found)) == frozenset(EDGES)
    assert all(found.waiting == 0 for found in verdict.found)


def test_the_scopes_that_the_command_takes_are_those_that_were_asked_for() -> None:
    assert {Scope(1, 3, 3), Scope(2, 2, 2)} <= set(DEFAULT_SCOPES)


@pytest.mark.parametrize("name", DIALECTS)
def test_an_enforced_dialect_holds_and_takes_nothing_that_is_ours(name: str) -> None:
    forbidden = DIALECTS[name].forbidden()
    found = search(Scope(1, 1, 2), forbidden)
    assert found.violation is None
    assert not found.edges & forbidden
    assert found.edges


def test_two_searches_of_a_scope_find_the_same() -> None:
    first, second = search(Scope(1, 1, 2)), search(Scope(1, 1, 2))
    assert first._replace(seconds=0) == second._replace(seconds=0)


def test_scopes_searched_in_processes_find_what_one_process_finds() -> None:
    scopes = [Scope(1, 1, 1), Scope(1, 1, 2)]
    reports: list[Found] = []
    found = search_all(scopes, reports.append)
    assert [each._replace(seconds=0) for each in found] == [search(scope)._replace(seconds=0) for scope in scopes]
    assert {report.scope for report in reports} == {Scope(1, 1, 2)}  # the other one is too small for a report


def unfenced(job: Job | None, command: c.AnyCommand, now: int, *rest: Any) -> Applied:
    """Let a stale owner complete a job that somebody else runs."""
    if (
        isinstance(command, c.Complete)
        and job
        and job.lease
        and job.state is State.RUNNING
        and command.by.attempt < job.attempt
    ):
        holder = c.Actor(who=Who.OWNER, name="x", attempt=job.attempt, token=f"token-0-{job.attempt}")
        return apply(job, c.Complete(by=holder, result=command.result), now, *rest)
    return apply(job, command, now, *rest)


def test_a_planted_bug_is_found_by_a_shortest_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "apply", unfenced)
    found = search(Scope(1, 2, 2))
    assert found.violation is not None
    assert found.violation.problem == "only_the_holder_writes_as_owner: a write of attempt 1 was accepted"
    assert found.violation.path == (
        "client: enqueue",
        "worker0: claim",
        "operator: stall",
        "worker1: claim by id",
        "worker1, attempt 2: start",
        "worker0, attempt 1: complete",
    )
    verdict = Verdict([found], [], {"formal": []})
    assert verdict.violations == 1


def test_an_unexpected_exception_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Applied:
        raise KeyError("forgotten")

    monkeypatch.setattr(searching, "apply", broken)
    found = search(Scope(1, 1, 1))
    assert found.violation is not None
    assert found.violation.problem == "KeyError: 'forgotten'"
    assert len(found.violation.path) == 1
