"""Run the campaign: `python -m chaos --minutes 10`, or `make chaos MINUTES=10`.

Real workers, real clients, and somebody who kills, stops and cuts them, on a file and on a PostgreSQL of our own. Then
everything is healed, and a checker reads what each process recorded and what stands on the logs.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.campaign import Outcome, Progress, interrupt_on_term, run
from chaos.grounds import STORES

_SHOWN: Final = 20  # violations of each store
_PLAIN_EVERY: Final = 15.0  # seconds, where nobody watches a terminal


def showing(*, live: bool) -> Progress:
    """Give how progress is told: in one line that changes on a terminal, else in a line now and then."""
    last = 0.0

    def show(what: str, left: float, done: int, kills: int) -> None:
        nonlocal last
        if time.monotonic() - last < (0.5 if live else _PLAIN_EVERY):
            return
        last = time.monotonic()
        operations = f", {done:,} operations" if done else ""
        line = f"{what}: {int(left) // 60}:{int(left) % 60:02} left{operations}, {kills} killed"
        sys.stderr.write(f"\r{line:<78}" if live else f"{line}\n")
        sys.stderr.flush()

    return show


def report(outcomes: Sequence[Outcome], seed: int) -> str:
    """Say what was done, and what came of it."""
    names = list(outcomes[0].figures)
    width = max(map(len, names))
    lines = ["", f"{'':{width}}" + "".join(f"{outcome.store:>12}" for outcome in outcomes)]
    lines += [f"{name:{width}}" + "".join(f"{each.figures[name]:>12,}" for each in outcomes) for name in names]
    for outcome in outcomes:
        for rule, job, detail in outcome.violations[:_SHOWN]:
            lines.append(f"\n{outcome.store} breaks the rule `{rule}`{f', job {job}' if job else ''}: {detail}")
        if more := len(outcome.violations) - _SHOWN:
            lines += [f"\n… and {more} more"] if more > 0 else []
        if outcome.violations:
            lines.append(f"\nThe records and the logs lie in {outcome.folder}.")
    lines.append(f"\nThe dice of this campaign: --seed {seed}\n")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Run the campaign, and say by the exit code whether every rule held."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__.partition("\n\n")[2])
    parser.add_argument(
        "--minutes", type=float, default=10, help="how long, for all stores together; healing comes on top"
    )
    parser.add_argument("--store", choices=[*STORES, "both"], default="both")
    parser.add_argument("--seed", type=int, help="of the dice that choose the acts; by default another one each time")
    parser.add_argument("--json", action="store_true", help="print figures and violations as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all records, also where nothing was found")
    asked = parser.parse_args(given)
    if asked.keep is not None and asked.keep.exists() and any(asked.keep.iterdir()):
        parser.error(f"there is something in {asked.keep}: records of two campaigns are none of either")
    interrupt_on_term()
    stores = STORES if asked.store == "both" else (asked.store,)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="leftfold-chaos-")) if asked.keep is None else asked.keep.absolute()
    progress = showing(live=sys.stderr.isatty())
    seconds = 60 * asked.minutes / len(stores)
    try:
        outcomes = [run(store, seconds, seed, folder / store, progress) for store in stores]
    except KeyboardInterrupt:
        sys.stderr.write(f"\nstopped, and nothing was checked; the records lie in {folder}\n")
        return 130
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    if asked.json:
        sys.stdout.write(
            json.dumps({"seed": seed, "stores": [_shape(outcome) for outcome in outcomes]}, indent=2) + "\n"
        )
    else:
        sys.stdout.write(report(outcomes, seed))
    failed = any(outcome.violations for outcome in outcomes)
    if not failed and asked.keep is None:
        shutil.rmtree(folder)
    return int(failed)


def _shape(outcome: Outcome) -> dict[str, object]:
    found = [violation._asdict() for violation in outcome.violations]
    return {"store": outcome.store, "figures": outcome.figures, "violations": found, "records": str(outcome.folder)}


if __name__ == "__main__":
    sys.exit(main())
