"""What tests of the parts of a worker share: real claims, and a real engine whose answers can be kept back."""

import threading  # noqa: TC003 - a type, and nothing to hide
from typing import Final

import leftfold
from leftfold import Engine
from leftfold.core.retry import Policy
from leftfold.core.values import Spec
from leftfold.store.replies import Claim

SOON: Final = 10.0
OWNER: Final = "w"


def held_in(engine: Engine, names: list[str], seconds: float) -> list[Claim]:
    """Make a job of each name, which is its kind, and start them all."""
    policy = Policy(lease=int(seconds * 1_000_000))
    engine.enqueue_many([leftfold.NewJob(name, policy=policy) for name in names])
    claims = engine.claim(OWNER, kinds=names, limit=len(names), start=True)
    return sorted(claims, key=lambda claim: names.index(claim.kind))


def unheld(seconds: float) -> Claim:
    """Give a claim of which nothing but its times is looked at."""
    policy = Policy(lease=int(seconds * 1_000_000))
    return Claim(job_id="j", attempt=1, token="t", owner=OWNER, until=0, failures=0, spec=Spec(kind="k"), policy=policy)


class Faults:
    """What becomes of the answers of an engine, and what it was asked for, by the kinds of the jobs."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.problems: list[BaseException] = []  # one for each call to come
        self.problem: BaseException | None = None  # for every call to come
        self.happens = False  # the store does as it is asked to, although nobody hears of it
        self.stuck: threading.Event | None = None

    def met(self, kinds: list[str]) -> BaseException | None:
        """Note a call, hold it up, and give what is to be raised in place of its answer."""
        self.asked.append(kinds)
        if self.stuck is not None:
            self.stuck.wait(SOON)
        return self.problems.pop(0) if self.problems else self.problem
