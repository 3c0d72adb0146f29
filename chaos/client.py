"""A client of the campaign: `python -m chaos.client URL SCHEMA FOLDER NAME SEED`, until SIGTERM.

It asks for one thing at a time, says so first, and then what it was told. Where the answer was lost it asks again under
the same request id; what a killed client left open is asked again by the one that comes after it.
"""

import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import leftfold
from chaos import app as jobs
from chaos.records import Record, Recorder, read_file
from leftfold import Engine, NewJob
from leftfold.core.errors import OutcomeUnknownError, RefusedError, StoreError, StoreUnavailableError

ENDED: Final = {"succeeded", "failed", "cancelled", "dead_lettered"}
WINDOW: Final = 30  # jobs of ours that have not ended: workers are slow, and all is to end in time
KEYS: Final = 5
THINK: Final = 0.03  # seconds
AGAIN: Final = 0.1
FORGETS: Final = 0.05  # how often a client asks for what it was told already, as one that lost the answer would


class Client:
    """What it knows of its jobs, and the file in which it says what it does."""

    def __init__(self, engine: Engine, folder: Path, name: str, seed: int) -> None:
        self._engine = engine
        self._name = name
        self._recorder = Recorder(folder, name)
        self._dice = random.Random(f"{seed}-{name}")  # noqa: S311 - no secrets here
        self._asked = 0
        self._first = self._dice.sample(list(jobs.KINDS), len(jobs.KINDS))  # each of them once, whatever the dice say
        self.live: dict[str, str] = {}  # ids of jobs that may still run, with their kinds
        self.leaves = False

    def run(self) -> None:
        """Ask for this and that until it is time to leave."""
        verbs = list(VERBS)
        while not self.leaves:
            if len(self.live) >= WINDOW:
                self.ask("get", job=next(iter(self.live)))
                time.sleep(THINK)  # workers are to keep up
                continue
            (verb,) = self._dice.choices(verbs, [VERBS[each] for each in verbs])
            chosen = CHOICES[verb](self)
            if chosen is not None:
                self.ask(verb, **chosen)
            time.sleep(self._dice.uniform(0, 2 * THINK))  # as a person or a program between two calls

    def ask(self, verb: str, op: str | None = None, **said: Any) -> None:
        """Ask for one thing until it is settled, and record every step of it."""
        if op is None:
            self._asked += 1
            op = f"{self._name}-{self._asked}"
        while True:
            self._recorder.note("asks", op=op, verb=verb, **said)
            try:
                told = ACTS[verb](self._engine, op, said)
            except RefusedError as refusal:
                self._recorder.note("refused", op=op, verb=verb, code=refusal.code)
                return
            except StoreUnavailableError as problem:  # nothing was written, it says
                self._recorder.note("failed", op=op, verb=verb, code=problem.code)
            except (OutcomeUnknownError, StoreError) as problem:
                self._recorder.note("unknown", op=op, verb=verb, code=problem.code)
                if not said.get("request", True):
                    return  # to ask again would be to ask for another one
            else:
                self._recorder.note("told", op=op, verb=verb, **told)
                self._learn(said, told)
                if not said.get("request", "job" in said) or self._dice.random() > FORGETS:
                    return
            time.sleep(AGAIN)  # a store that is down is not asked without a pause

    def _learn(self, said: Record, told: Record) -> None:
        for job_id, new in zip(told.get("jobs", ()), said.get("new", ()), strict=False):
            self.live[job_id] = new["kind"]
        for job_id, _, state in told.get("seen", ()):
            if (kind := self.live.pop(job_id, None)) and state not in ENDED:
                self.live[job_id] = kind  # at the end of the line

    def finish(self, predecessor: Path) -> None:
        """Ask again what another one asked for last, if nobody knows what came of it."""
        self._first.clear()  # that one asked for each kind: those that kill workers are not to be most of all
        last: Record = {}
        for record in read_file(predecessor):
            if record["what"] == "asks":
                last = record
            elif record["what"] in {"told", "refused"} or not last.get("request", True):
                last = {}
        if last and last.get("request", True):
            said = {name: value for name, value in last.items() if name not in {"at", "by", "what"}}
            self.ask(**said)

    # --- what to ask for ----------------------------------------------------------------------------------------------

    def _new(self) -> Record:
        drawn = self._dice.choices(list(jobs.KINDS), list(jobs.KINDS.values()))
        kind = (self._first or drawn).pop().kind
        return {"kind": kind, "how": self._dice.choice(jobs.WAYS[kind]) if kind in jobs.WAYS else None}

    def one(self) -> Record:
        """Choose a job without a request: what is lost is lost."""
        return {"new": [self._new()], "request": False}

    def requested(self) -> Record:
        """Choose a job that is asked for by a request."""
        return {"new": [self._new()], "request": True}

    def keyed(self) -> Record:
        """Choose a job of which there may be one at a time, whoever asks."""
        return {"new": [{"kind": "keyed", "how": None, "key": f"key-{self._dice.randrange(KEYS)}"}], "request": True}

    def many(self) -> Record:
        """Choose a batch."""
        return {"new": [self._new() for _ in range(self._dice.randint(2, 6))], "request": True}

    def signal(self) -> Record | None:
        """Choose a job that waits, or will."""
        waiting = [job_id for job_id, kind in self.live.items() if kind == "asks"]
        return {"job": self._dice.choice(waiting)} if waiting else None

    def cancel(self) -> Record | None:
        """Choose a job to be cancelled, above all one that takes its time."""
        patient = [job_id for job_id, kind in self.live.items() if kind in {"patient", "slow", "keyed"}]
        some = patient if self._dice.random() < 0.7 else list(self.live)
        mode = self._dice.choice(["soft", "hard"])
        return {"job": self._dice.choice(some), "mode": mode} if some else None

    def look(self) -> Record | None:
        """Choose a job to look at."""
        return {"job": self._dice.choice(list(self.live))} if self.live else None


def enqueue(engine: Engine, op: str, said: Record) -> Record:
    """Make the jobs. Each has a name of its own in its payload, by which the checker knows it."""
    handlers = {handler.kind: handler for handler in jobs.KINDS}
    made: list[NewJob] = []
    for number, new in enumerate(said["new"]):
        arguments = {"op": f"{op}.{number}"} | ({"how": new["how"]} if new["how"] else {})
        call = handlers[new["kind"]].call(**arguments).job
        made.append(call._replace(key=new.get("key")))
    receipts = engine.enqueue_many(made, request_id=op if said["request"] else None)
    given = [receipt for receipt in receipts if receipt]
    return {"jobs": [receipt.job_id for receipt in given], "seen": [_seen(receipt) for receipt in given]}


def _seen(receipt: leftfold.Receipt) -> list[Any]:
    return [receipt.job_id, receipt.version, receipt.state.value]


def _told(receipt: leftfold.Receipt) -> Record:
    return {"seen": [_seen(receipt)], "changed": receipt.changed}


def signal_it(engine: Engine, op: str, said: Record) -> Record:
    """Answer what the job waits for: always the same, for another answer would be an error."""
    return _told(engine.signal(said["job"], "go", "go", request_id=op))


def cancel_it(engine: Engine, op: str, said: Record) -> Record:
    """Cancel the job."""
    return _told(engine.cancel(said["job"], mode=said["mode"], request_id=op))


def get(engine: Engine, _: str, said: Record) -> Record:
    """Look at one job."""
    job = engine.get(said["job"])
    return {"seen": [[job.id, job.version, job.state.value]]}


def list_some(engine: Engine, _: str, __: Record) -> Record:
    """Look at the newest jobs."""
    return {"seen": [[job.id, job.version, job.state.value] for job in engine.list(limit=20).jobs]}


#: How often each is asked for, how it chooses, and what it does.
VERBS: Final = {"one": 20, "requested": 30, "keyed": 8, "many": 6, "signal": 12, "cancel": 10, "get": 10, "list": 4}
CHOICES: Final[dict[str, Callable[[Client], Record | None]]] = {
    "one": Client.one, "requested": Client.requested, "keyed": Client.keyed, "many": Client.many,
    "signal": Client.signal, "cancel": Client.cancel, "get": Client.look, "list": lambda _: {},
}  # fmt: skip
ACTS: Final[dict[str, Callable[[Engine, str, Record], Record]]] = {
    "one": enqueue, "requested": enqueue, "keyed": enqueue, "many": enqueue, "signal": signal_it, "cancel": cancel_it,
    "get": get, "list": list_some,
}  # fmt: skip


def main() -> None:
    """Be a client."""
    url, schema, folder, name, seed, *predecessor = sys.argv[1:]
    engine = _opened(url, schema, name)
    client = Client(engine, Path(folder), name, int(seed))

    def leave(*_: object) -> None:
        client.leaves = True

    signal.signal(signal.SIGTERM, leave)
    for file in predecessor:
        client.finish(Path(file))
    client.run()
    engine.close()


def _opened(url: str, schema: str, name: str) -> Engine:
    while True:
        try:
            # Whoever comes after one that was killed speaks in its name: a request is known by who asks, too.
            return leftfold.open(url, schema=schema, actor=name.rpartition("-")[0], create=False, wake=True)
        except StoreUnavailableError:
            time.sleep(AGAIN)  # the server comes up again


if __name__ == "__main__":
    main()
