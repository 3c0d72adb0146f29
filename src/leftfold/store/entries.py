"""A new job on its way to the store, and its first entry where that is made and sealed outside of the database."""

from typing import Final

from leftfold.core.record import GENESIS, covered, hashed

#: What a statement that makes jobs is told of each.
ENQUEUE_COLUMNS: Final = (
    "id", "due", "delay", "rest", "said", "tenant", "kind", "queue", "priority", "key", "correlation_id", "lease",
    "request_hash",
)  # fmt: skip


def first_data(now: int, due: int | None, delay: int | None, rest: str) -> tuple[int, str]:
    """Give from when on a new job is due, and what its first event says: when, only if that is later than now."""
    from_then = max(now, now + (delay or 0) if due is None else due)
    return from_then, f'{{"due":{from_then},{rest}' if from_then > now else f"{{{rest}"


def first_hash(job_id: str, at: int, words: str, data: str) -> bytes:
    """Give the hash that its chain begins with."""
    return hashed(GENESIS + covered(job_id, 1, at, words, data))
