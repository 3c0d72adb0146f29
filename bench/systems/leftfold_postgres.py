"""Leftfold on PostgreSQL."""

from bench.ours import enqueue, enqueue_many, finished, prepare, work
from bench.system import About, Promises

__all__ = ["ABOUT", "enqueue", "enqueue_many", "finished", "prepare", "work"]

ABOUT = About(
    title="Leftfold, PostgreSQL",
    needs=(),
    server="postgres",
    promises=Promises(
        durability="committed before `enqueue` returns",
        history="every event of every job, in a hash chain that `verify` checks",
        recovery="leases and fences: run again when the lease ends, and late writes are refused",
    ),
    pace=14_000,
    settings="concurrency 1000",
    concurrency=1000,
    role="ours",
)
