"""What a keeper does: take jobs from owners whose leases ran out, and end waits whose deadlines have passed."""

from leftfold.core import commands as c
from leftfold.core.decide import Forbidden
from leftfold.store.ops import Ask, Outcome, carry_out
from leftfold.store.query import Query, Steps


def reap(by: c.Actor, limit: int, forbidden: Forbidden) -> Steps[list[Outcome]]:
    """Do so for some of the jobs that it is time for; those that others are busy with are left to the next time."""
    rows = yield Query("overdue", {"limit": limit})
    asks = [Ask(job_id, c.Expire(by=by) if waits else c.Stall(by=by)) for job_id, waits in rows]
    return (yield from carry_out(asks, forbidden)) if asks else []
