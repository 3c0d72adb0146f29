"""What the engine gives back. All times are microseconds since 1970, UTC."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from leftfold.core.commands import Actor
from leftfold.core.frozen import Frozen
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import State, Who
from leftfold.core.retry import Policy
from leftfold.core.values import Failure, Spec
from leftfold.store.audit import Finding


class Receipt(Frozen):
    """Where a job stands after a command. `changed` is false if it was so already."""

    job_id: str
    state: State
    version: int
    rev: int
    attempt: int
    until: int | None = None
    cancel_requested: bool = False
    changed: bool = True


@lru_cache(maxsize=256)  # one claim is many jobs, of which most are in their first attempt
def _owner(name: str, attempt: int, token: str) -> Actor:
    return Actor(who=Who.OWNER, name=name, attempt=attempt, token=token)


class Claim(Frozen):
    """A job that is ours until the lease ends: what its handler needs, and what the fence asks for.

    The token is the secret of this claim; whoever shows it with the attempt speaks as the owner.
    """

    job_id: str
    attempt: int
    token: str
    owner: str
    until: int
    failures: int
    spec: Spec
    policy: Policy
    lost: bool = False  # whether an attempt of it was lost before: it may have killed its worker

    @property
    def kind(self) -> str:
        """Give what kind of job it is."""
        return self.spec.kind

    @property
    def payload(self) -> Any:
        """Give the payload as Python values."""
        return msgspec.json.decode(self.spec.payload)

    @property
    def actor(self) -> Actor:
        """Give the claim's holder as the one who speaks."""
        return _owner(self.owner, self.attempt, self.token)


class Summary(Frozen):
    """A job as a list shows it: everything but what stands in its events."""

    id: str
    kind: str
    queue: str
    tenant: str
    key: str | None
    priority: int
    correlation_id: str | None
    state: State
    version: int
    rev: int
    attempt: int
    failures: int
    created_at: int
    updated_at: int
    ended_at: int | None
    due: int | None
    owner: str | None
    until: int | None
    deadline: int | None
    cancel_requested: bool
    incident: str | None
    resolved_at: int | None
    frozen: bool


class Page(Frozen):
    """Some of the jobs, newest first. `next` asks for those behind them; it is None at the end."""

    jobs: tuple[Summary, ...]
    next: str | None


class Incident(Frozen):
    """Dead letters that the same thing went wrong with: how many need somebody, how many are settled, and one of them.

    It tells of the letters that are there: what is tried again leaves it, and comes back if it ends so once more.
    """

    id: str
    kind: str
    open: int
    resolved: int
    first_at: int
    last_at: int
    oldest: str
    newest: str
    reason_code: Reason
    stage: Stage
    error: Failure


class Count(Frozen):
    """How many jobs of a kind are in a state, in a queue."""

    queue: str
    kind: str
    state: State
    jobs: int


class Verdict(Frozen):
    """What a check of the store gave: how much was looked at, what cannot be so, and which jobs it froze for that.

    `total` counts the findings; no more than the first thousand are kept. `still_frozen` are jobs, a thousand at most,
    that were frozen before, and in which nothing is wrong by now: `rebuild` lets them go on.
    """

    jobs: int
    events: int
    findings: tuple[Finding, ...]
    total: int
    frozen: tuple[str, ...]
    still_frozen: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was found."""
        return self.total == 0


class Queue(Frozen):
    """A queue, and whether it is paused."""

    name: str
    paused_at: int | None = None
    paused_by: str | None = None
    reason: str | None = None


class WorkerView(Frozen):
    """A worker: since when it runs, when it was last heard of, and what it told of itself."""

    name: str
    started_at: int
    beat_at: int
    age: int  # of the last beat, in microseconds
    told: Raw
