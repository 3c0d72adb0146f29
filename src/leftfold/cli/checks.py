"""What `leftfold doctor` finds: checks with a verdict each, and those that both stores have."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from leftfold.cli.text import span
from leftfold.core import commands as c
from leftfold.core.decide import NOTHING_FORBIDDEN
from leftfold.core.errors import StoreNotReadyError
from leftfold.core.lifecycle import Who
from leftfold.core.limits import SECOND
from leftfold.store import claiming
from leftfold.store.migrate import Applied, Migration, pending
from leftfold.store.query import Query

T = TypeVar("T")

#: How far the clocks may differ before it matters: leases are a minute long, and renewed at a third of that.
SKEW_MAX: Final = 2 * SECOND
CLAIM_INDEX: Final = "jobs_claimable"


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class Check(NamedTuple):
    """What was looked at, what was found, and what to do about it."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Check:
    """Say that something is as it should be."""
    return Check(name, Verdict.OK, found)


def warn(name: str, found: str, advice: str) -> Check:
    """Say that something may become a problem."""
    return Check(name, Verdict.WARN, found, advice)


def bad(name: str, found: str, advice: str) -> Check:
    """Say that something is a problem."""
    return Check(name, Verdict.BAD, found, advice)


def each(looks: Iterable[Callable[[T], Check]], subject: T, problem: type[Exception]) -> Iterator[Check]:
    """Make the checks; one that the database refuses is a finding like the others."""
    for look in looks:
        try:
            yield look(subject)
        except problem as refused:
            told = str(refused).strip().partition("\n")[0]
            yield bad(look.__name__.strip("_"), f"could not be looked at: {told}", "see what the database says")


def schema(known: Sequence[Migration], applied: Sequence[Applied]) -> Check:
    """Compare the schema of the store with ours."""
    ours = known[-1].version
    try:
        missing = pending(known, applied)
    except StoreNotReadyError as problem:
        return bad("schema", str(problem), "use the version of leftfold that made the store, or a later one")
    if missing:
        there = f"schema {applied[-1].version}" if applied else "no tables of leftfold"
        return bad("schema", f"{there}, this version has schema {ours}", "run `leftfold migrate`")
    return ok("schema", f"{ours}, as this version has it")


def skew(store: int, here: int, slack: int = 0) -> Check:
    """Compare the store's clock with this machine's; `slack` is how long it took to ask."""
    difference = max(abs(store - here) - slack, 0)
    if difference <= SKEW_MAX:
        return ok("clock", f"the store's clock and this machine's differ by {span(difference)}")
    ahead = "ahead of" if store > here else "behind"
    found = f"the store's clock is {span(difference)} {ahead} this machine's"
    return warn("clock", found, "let both follow a time server: leases and due times run on the store's clock")


def claim_query() -> Query:
    """Give the query that a worker claims with, as it asks it."""
    worker = c.Claim(by=c.Actor(who=Who.WORKER, name="doctor"), token=claiming.new_token())
    return next(
        claiming.claim(
            worker,
            claiming.Wanted(None, None, 1),
            claiming.Trail(),
            start=True,
            request=None,
            forbidden=NOTHING_FORBIDDEN,
        )
    )


def index(*, found: bool, scans: bool) -> Check:
    """Judge the plan of the claim."""
    if found and not scans:
        return ok("index", f"claims go through {CLAIM_INDEX}")
    why = "read the whole table" if scans else f"do not use {CLAIM_INDEX}"
    return bad("index", f"claims {why}", "make the index anew as the migrations have it, then ANALYZE the table")


def frozen(job_ids: Sequence[str]) -> Check:
    """Judge the jobs that are frozen."""
    if not job_ids:
        return ok("frozen", "no job is frozen")
    others = f", and {len(job_ids) - 1:,} more" if len(job_ids) > 1 else ""
    advice = f"`leftfold verify --job {job_ids[0]}` says why; `leftfold rebuild` lets it go on if its log is sound"
    return warn("frozen", f"nobody claims or changes {job_ids[0]}{others}", advice)
