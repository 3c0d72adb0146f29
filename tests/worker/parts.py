"""What tests of the parts of a worker share: claims that no store gave."""

from typing import Any

from leftfold.core.lifecycle import State
from leftfold.core.retry import Policy
from leftfold.core.values import Spec
from leftfold.store.replies import Claim, Receipt

SOON = 10.0


def claim_of(name: str, seconds: float = 60.0) -> Claim:
    policy = Policy(lease=int(seconds * 1_000_000))
    return Claim(
        job_id=name, attempt=1, token="t", owner="w", until=0, failures=0, spec=Spec(kind="k"), policy=policy
    )  # fmt: skip


def receipt_of(claim: Claim, **more: Any) -> Receipt:
    return Receipt(job_id=claim.job_id, state=State.RUNNING, version=3, rev=3, attempt=1, **more)
