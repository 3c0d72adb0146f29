"""What a keeper does: take jobs from owners whose leases ran out, and end waits whose deadlines have passed."""

from typing import NamedTuple

from leftfold.core import commands as c
from leftfold.core.decide import Forbidden
from leftfold.core.errors import CorruptLogError
from leftfold.store.audit import freeze
from leftfold.store.ops import Ask, Outcome, carry_out
from leftfold.store.query import Query, Steps


class Watched(NamedTuple):
    """A stretch of the store's time over which its clock did not jump, as far as anybody knows."""

    since: int | None = None
    until: int | None = None


def reap(by: c.Actor, limit: int, watched: Watched, forbidden: Forbidden) -> Steps[list[Outcome]]:
    """Do so for some of the jobs that it is time for; those that others are busy with are left to the next time."""
    rows = yield Query("overdue", {"limit": limit, "since": watched.since, "seen": watched.until})
    asks = [Ask(job_id, c.Expire(by=by) if waits else c.Stall(by=by)) for job_id, waits in rows]
    outcomes = (yield from carry_out(asks, forbidden)) if asks else []
    corrupt = [ask.job_id for ask, told in zip(asks, outcomes, strict=True) if isinstance(told, CorruptLogError)]
    if corrupt:  # else they would stand in the way of all others, again and again
        yield from freeze(corrupt, by.name)
    return outcomes
