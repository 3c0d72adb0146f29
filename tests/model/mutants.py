"""Planted bugs: one-line mutations of the core, each with the test that must turn red.

`model` stands for the exhaustive search of a small scope; the problem it must report is named.
"""

from typing import Final, NamedTuple


class Mutant(NamedTuple):
    """One line of the source, what it becomes, and who catches it."""

    name: str
    file: str
    old: str
    new: str
    caught_by: str  # the invariant that the model checker names, or a test


MODEL: Final = "model: "

# fmt: off
MUTANTS: Final = (
    Mutant("the token is not compared", "core/decide.py",
           " or c.digest(by.token) != job.lease.token:", ":",
           MODEL + "half a fence was enough"),
    Mutant("the attempt is not compared", "core/decide.py",
           "job.lease is None or by.attempt != job.attempt or", "job.lease is None or",
           MODEL + "half a fence was enough"),
    Mutant("a repeated request is done again", "core/decide.py",
           "    return True\n", "    return False\n",
           MODEL + "a_repeated_request_is_a_no_op"),
    Mutant("a request_id serves for two requests", "core/decide.py",
           "if job.requests[command.request_id] != c.fingerprint(command):", "if False:",
           MODEL + "a request_id served for another request"),
    Mutant("expected_rev is ignored", "core/decide.py",
           "command.expected_rev is not None and", "False and",
           MODEL + "a command with a stale expected_rev was not refused"),
    Mutant("anybody may say anything", "core/decide.py",
           "if command.by.who not in rule.who:", "if False:",
           MODEL + "CorruptLogError"),
    Mutant("a request_id on every record", "core/decide.py",
           "asked = command.request_id if first else None", "asked = command.request_id",
           "tests/unit"),
    Mutant("a claim before the job is due", "core/answers.py",
           "if job.due is not None and job.due > now:", "if False:",
           MODEL + "leases_are_new"),
    Mutant("a contradicting signal overwrites the answer", "core/answers.py",
           "    if answered is not None:\n", "    if False:\n",
           MODEL + "answers_stand"),
    Mutant("a signal under the key of a timer", "core/answers.py",
           "if wait is not None and (wait.until is WaitFor.SIGNAL) != (wait.key == command.key):", "if False:",
           MODEL + "a_wait_ends_as_it_should"),
    Mutant("a wait expires early", "core/answers.py",
           "if wait.deadline is None or wait.deadline > now:", "if wait.deadline is None:",
           MODEL + "a_wait_ends_as_it_should"),
    Mutant("a job is resumed before the others ended", "core/answers.py",
           "if wait.until is not WaitFor.JOBS or missing:", "if wait.until is not WaitFor.JOBS:",
           MODEL + "KeyError"),
    Mutant("a closed job is reopened without a reason", "core/answers.py",
           "if job.state in CLOSED and not command.reason:", "if False:",
           MODEL + "ended_means_ended"),
    Mutant("a soft cancellation is hard", "core/answers.py",
           "asked = command.mode is CancelMode.SOFT and", "asked = False and",
           MODEL + "a_soft_cancellation_asks"),
    Mutant("a keeper robs a live worker", "core/endings.py",
           "if keeper and job.lease.until > now:", "if False:",
           MODEL + "keepers_do_not_rob"),
    Mutant("the budget is never spent", "core/endings.py",
           "if hopeless or not job.policy.allows_retry(error.code, failures):", "if hopeless:",
           MODEL + "the_budget_holds"),
    Mutant("one failure too many", "core/retry.py",
           "return most is None or failures < most", "return most is None or failures <= most",
           MODEL + "the_budget_holds"),
    Mutant("a release ignores the cancellation", "core/endings.py",
           "    if job.cancel_requested_at is not None:\n        return [_heeded()]\n    return [(e.Released",
           "    return [(e.Released",
           MODEL + "cancellation_is_heeded"),
    Mutant("a wait begins on an answered key", "core/endings.py",
           "    if wait.key in job.answers:\n", "    if False:\n",
           MODEL + "answers_stand"),
    Mutant("a dead letter forgets its last owner", "core/endings.py",
           "last_owner=last.owner if last else None", "last_owner=None",
           MODEL + "dead_letters_are_complete"),
    Mutant("a claim does not count", "core/job.py",
           "attempt=job.attempt + 1, lease", "attempt=job.attempt, lease",
           MODEL + "attempt_counts_claims"),
    Mutant("a renewal leaves rev as it is", "core/job.py",
           "renewals=job.renewals + 1", "renewals=job.renewals",
           MODEL + "rev_moves_with_every_mutation"),
    Mutant("a state keeps what it forbids", "core/job.py",
           "            changes[name] = None\n", "            pass\n",
           MODEL + "shapes"),
    Mutant("a job may be claimed while it runs", "core/lifecycle.py",
           "(QUEUED, RETRYING, STALLED), CLAIMED", "(QUEUED, RETRYING, STALLED, RUNNING), CLAIMED",
           MODEL + "leases_are_new"),
    Mutant("a blocked job is requeued by the keeper", "core/lifecycle.py",
           "(QUEUED, RETRYING, STALLED), QUEUED", "(QUEUED, RETRYING, STALLED, WAITING), QUEUED",
           MODEL + "blocked_jobs_are_not_reclaimed"),
    Mutant("a stall while running is not charged", "core/job.py",
           "            if job.state is State.RUNNING:\n", "            if False:\n",
           "tests/unit"),
    Mutant("the hash does not cover the time", "core/record.py",
           "        str(record.at),\n", "",
           "tests/unit"),
    Mutant("the hash does not cover the lengths", "core/record.py",
           'b"%d:%b" % (len(field), field)', "field",
           "tests/unit"),
    Mutant("the backoff has no cap", "core/retry.py",
           "int(min(float(self.cap), self.base * self.factor**power))", "int(self.base * self.factor**power)",
           "tests/unit"),
    Mutant("an early signal is lost", "core/answers.py",
           "    return (e.Signalled(key=command.key, payload=command.payload),)", "    return NOTHING_TO_DO",
           "tests/unit"),
    Mutant("a lost reply makes another result true", "core/answers.py",
           "last.ended_by == e.Succeeded.wire and job.result == result", "last.ended_by == e.Succeeded.wire",
           "tests/unit"),
    Mutant("a cell of seed 000 is wrong", "dialects/formal.py",
           '"Failed":    {"job_requeued": "Queued"}', '"Failed":    {}',
           "tests/dialects"),
    Mutant("an extension is not declared", "dialects/contract.py",
           "Extension(e.Requeued,     (FAILED,),", "Extension(e.Requeued,     (),",
           "tests/dialects"),
)
# fmt: on
