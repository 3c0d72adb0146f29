"""A campaign on one store: let everybody loose, heal, wait until every job has ended, and have it all checked."""

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import leftfold
from chaos.checker import Violation, violations
from chaos.fleet import Fleet
from chaos.grounds import SCHEMA, Ground, ground_of
from chaos.history import ENDED, read_export
from chaos.nemesis import Nemesis
from chaos.of_handlers import late
from chaos.records import Record, Recorder, Tally, read
from chaos.story import Row, Story
from leftfold import Engine
from leftfold.core.errors import StoreError

#: What handlers say of the trouble that they make: some takes a process of its own, whose worker may be killed before.
_TROUBLES: Final = ("dies", "grabs", "hogs")
HEALING: Final = 120.0  # seconds until everything has to have ended
_LOOK: Final = 0.1

#: Says how it goes: which store, seconds left, operations and kills so far.
Progress = Callable[[str, float, int, int], None]


class Outcome(NamedTuple):
    """What came of a campaign on one store."""

    store: str
    figures: dict[str, int]
    violations: list[Violation]
    folder: Path


def run(store: str, seconds: float, seed: int, folder: Path, progress: Progress) -> Outcome:
    """Run a campaign for so long, and heal and check it."""
    folder.mkdir(parents=True, exist_ok=True)
    with ground_of(store, folder) as ground:
        fleet = Fleet(ground, folder, seed)
        nemesis = Nemesis(ground, fleet, Recorder(folder, "nemesis"), seed)
        wrong: list[str] = []
        try:
            _rage(fleet, nemesis, seconds, lambda left, done: progress(store, left, done, _kills(nemesis)), folder)
            nemesis.rest()
            fleet.wake()
            ground.heal()
            wrong += fleet.leave(fleet.clients)
            _heal(ground, fleet, lambda left: progress(f"{store}, healing", left, 0, _kills(nemesis)))
            wrong += fleet.leave(fleet.workers) + fleet.crashes + fleet.alarms()
        finally:
            fleet.close()
        with leftfold.open(ground.direct, schema=SCHEMA) as engine:
            return _judged(store, engine, folder, nemesis, wrong)


def _kills(nemesis: Nemesis) -> int:
    return nemesis.counts["worker processes killed"] + nemesis.counts["clients killed"]


def _rage(fleet: Fleet, nemesis: Nemesis, seconds: float, say: Callable[[float, int], None], folder: Path) -> None:
    """Let everybody loose for so long; on a busy machine for twice as long, if not everything has happened by then."""
    tally, troubles = Tally(folder, "told"), [Tally(folder, word) for word in _TROUBLES]
    begun = time.monotonic()
    while (spent := time.monotonic() - begun) < seconds or (
        spent < 2 * seconds and not (nemesis.is_satisfied and all(trouble.look() for trouble in troubles))
    ):
        fleet.keep_up()
        nemesis.tick()
        say(max(0.0, seconds - spent), tally.look())
        time.sleep(_LOOK)  # the campaign has a clock: it is to last


def _heal(ground: Ground, fleet: Fleet, say: Callable[[float], None]) -> None:
    """Wait until every job has ended. What has not when time is up, the checker will say."""
    end = time.monotonic() + HEALING
    while (left := end - time.monotonic()) > 0:
        fleet.keep_up(clients=False)
        try:
            with leftfold.open(ground.direct, schema=SCHEMA) as engine:
                if all(count.state.value in ENDED for count in engine.counts() if count.jobs):
                    return
        except StoreError:
            pass  # it may still recover
        say(left)
        time.sleep(5 * _LOOK)  # the workers need the machine


def _judged(store: str, engine: Engine, folder: Path, nemesis: Nemesis, wrong: list[str]) -> Outcome:
    verdict = engine.verify(freeze=False)
    findings = [f"verify: {each.what} {each.job_id or ''} {each.detail}" for each in verdict.findings]
    lines = list(engine.export_jobs())
    (folder / "export.txt").write_text("".join(lines), encoding="utf-8")
    records = read(folder)
    story = Story(read_export(lines), rows_of(engine), records, [*findings, *wrong])
    found = violations(story)
    figures = {
        **_of_clients(records),
        "jobs": len(story.logs),
        "events": sum(map(len, story.logs.values())),
        "attempts": sum(step.event.event == "claimed" for steps in story.steps.values() for step in steps),
        **_of_handlers(records),
        **nemesis.counts,
        "outcomes that came late": late(story),
        "lost": sum(each.rule == "lost" for each in found),
        "stale writes accepted": sum(each.rule == "stale" for each in found),
        "violations": len(found),
    }
    return Outcome(store, figures, found, folder)


def rows_of(engine: Engine) -> dict[str, Row]:
    """Give every row of the store, as a list shows it."""
    found: dict[str, Row] = {}
    after = None
    while True:
        page = engine.list(limit=1000, after=after)
        found.update({job.id: Row(job.state.value, job.version, job.attempt, job.failures) for job in page.jobs})
        after = page.next
        if after is None:
            return found


def _of_clients(records: list[Record]) -> dict[str, Any]:
    words = Counter(record["what"] for record in records if record["by"].startswith("client-"))
    return {
        "operations": words["told"] + words["refused"],
        "operations refused": words["refused"],
        "outcomes unknown": words["unknown"],
        "store not there": words["failed"],
    }


def _of_handlers(records: list[Record]) -> dict[str, Any]:
    words = Counter(record["what"] for record in records if record["by"].startswith("handlers-"))
    isolated = sum(record["what"] == "dies" and record["isolated"] for record in records)
    return {
        "effects": words["begins"],
        "workers brought down by jobs": words["dies"] - isolated,
        "isolated processes brought down": isolated,
        "interpreter's lock held": words["grabs"],
        "memory exhausted": words["hogs"],
    }


def interrupt_on_term() -> None:
    """Let SIGTERM unwind as Ctrl-C does: nobody else would end what was started."""

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
