"""What is asked of every system, how often, and of which systems in the short run."""

from collections.abc import Callable
from typing import Final, NamedTuple

from bench import measure
from bench.measure import Figures
from bench.running import Bench
from bench.system import OURS, About

#: The systems of `make bench`; `make bench-all` takes all there are.
FEW: Final = (
    "leftfold_postgres", "pgqueuer", "bare_postgres", "procrastinate", "oban", "leftfold_sqlite", "huey_sqlite",
    "bare_sqlite", "pgmq",
)  # fmt: skip
_ENQUEUERS: Final = frozenset(FEW) - {"pgmq"}
_FAST: Final = frozenset({"leftfold_postgres", "pgqueuer"})
#: Those that have done with a million jobs before the day is over.
_HASTY: Final = frozenset({*OURS, "pgqueuer", "bare_postgres", "bare_sqlite"})
#: Those that can hold ten thousand jobs at once: as coroutines, and not as threads.
_HOLDERS: Final = frozenset({*OURS, "pgqueuer"})

_SECONDS: Final = 2.0
_FEWEST: Final = 300
_QUICK: Final = 5_000  # a pace: whoever is quicker drains as many jobs as all others who are
_MANY: Final = 40_000
_NAPS: Final = 50_000

#: Where a million jobs are measured, there is time.
_WHOLE: Final = 1_000_000


class Workload(NamedTuple):
    """Something to measure. `few` are the systems of the short run that it is measured of, `only` those of any run."""

    name: str
    title: str
    figure: str  # the one that counts
    measure: Callable[[Bench], Figures]
    few: frozenset[str]
    handler: str | None = None  # which a system must be able to run
    rounds: int = 5
    only: frozenset[str] | None = None


def _jobs(about: About, many: int) -> int:
    """Give how many jobs a system drains: the same for all that are quick, else what takes about two seconds."""
    return many if about.pace >= _QUICK else max(int(about.pace * _SECONDS), _FEWEST)


def _drain(
    handler: str | None, workers: int, *, concurrency: int = 0, jobs: int = 0, many: int = _MANY
) -> Callable[[Bench], Figures]:
    def drain(system: Bench) -> Figures:
        about = system.about
        given = jobs or _jobs(about, many)
        return measure.drain(system, given, handler or about.plainest, workers, concurrency or None)

    return drain


def workloads(much: int) -> list[Workload]:
    """Give all of them; `much` is how many jobs wait, or are kept, where growth is measured."""
    slow = _ENQUEUERS - {"oban"}
    held = 60 if much >= _WHOLE else 15
    return [
        Workload("enqueue", "enqueue, one by one", "jobs/s", lambda b: measure.enqueue(b, 1.5), _ENQUEUERS),
        Workload("bulk", "enqueue, in bulk", "jobs/s", lambda b: measure.enqueue_many(b, 1.5),
                 slow | {"pgmq"}),
        Workload("drain", "drain no-op jobs, one worker process", "jobs/s", _drain(None, 1), slow),
        Workload("drain2", "drain no-op jobs, two worker processes", "jobs/s", _drain(None, 2), _FAST),
        Workload("latency", "pick-up, one job every 20 ms", "p50 ms", lambda b: measure.latency(b, 500, 0.02),
                 _ENQUEUERS - {"bare_postgres", "bare_sqlite"}),
        Workload("few", "drain, 10,000 waiting", "jobs/s, waiting", lambda b: measure.growth(b, measure.SLICE),
                 frozenset({"leftfold_postgres"}), None, 3, _HASTY),
        Workload("many", f"drain, {much:,} waiting", "jobs/s, waiting", lambda b: measure.growth(b, much),
                 frozenset({"leftfold_postgres"}), None, 3, _HASTY),
        Workload("memory", "a worker after 100,000 jobs", "worker MB", _drain(None, 1, jobs=100_000), _FAST, None, 1,
                 _HASTY),
        Workload("sync", "drain no-op jobs, handlers in threads", "jobs/s", _drain("noop_sync", 1),
                 _FAST | {"leftfold_sqlite"}, "noop_sync"),
        Workload("sync2", "drain no-op jobs, handlers in threads, two worker processes", "jobs/s",
                 _drain("noop_sync", 2), frozenset(), "noop_sync"),
        Workload("mix", "jobs of 10 ms, 500 at once", "jobs/s", _drain("nap", 1, concurrency=500, many=_NAPS),
                 _FAST, "nap"),
        Workload("leases", "10,000 jobs held", "worker CPU %", lambda b: measure.leases(b, 10_000, held),
                 frozenset({"leftfold_postgres"}), "long", 1, _HOLDERS),
        Workload("verify", "verify every job and every hash", "jobs/s", measure.verify, frozenset(OURS), None, 1,
                 frozenset(OURS)),
    ]  # fmt: skip
