"""Everything that is known of a campaign, put in the order in which the rules of its checker look at it."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from chaos.history import Event, Step, op_of, walk
from chaos.records import Record

MAKING: Final = frozenset({"one", "requested", "keyed", "many"})
WRITING: Final = MAKING | {"cancel", "signal"}

#: What breaks a rule: the job, and how it does.
Found = Iterator[tuple[str, str]]
Rule = Callable[["Story"], Found]


class Row(NamedTuple):
    """What the store says of a job when it is asked for a list."""

    state: str
    version: int
    attempt: int
    failures: int


class Attempt(NamedTuple):
    """What a handler recorded of one attempt."""

    begins: list[Record]
    ends: list[Record]


class Story:
    """Everything that is known, in the order in which rules look at it."""

    def __init__(
        self, logs: Mapping[str, Sequence[Event]], rows: Mapping[str, Row], records: Sequence[Record],
        findings: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.logs, self.rows, self.findings = logs, rows, findings
        self.steps: dict[str, list[Step]] = {job: list(walk(log)) for job, log in logs.items()}
        self.ops: dict[str, list[str]] = defaultdict(list)
        for job, log in logs.items():
            self.ops[op_of(log)].append(job)
        self.asked: dict[str, Record] = {}
        self.last: dict[str, Record] = {}  # the last word on each op
        self.doubtful: set[str] = set()  # ops of which an answer was lost, whatever was said later
        self.told: list[Record] = []
        self.answers: dict[str, list[Record]] = {}  # of ops that write: the first answer, and all behind it
        self.heard: list[Record] = []  # what handlers were told of their waits
        self.attempts: dict[tuple[str, int], Attempt] = defaultdict(lambda: Attempt([], []))
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        match record["what"]:
            case "asks":
                if record["op"] in self.last and self.last[record["op"]]["what"] in {"asks", "unknown"}:
                    self.doubtful.add(record["op"])
                self.asked[record["op"]] = self.last[record["op"]] = record
            case "told":
                self.last[record["op"]] = record
                self.told.append(record)
                if record["verb"] in WRITING:
                    self.answers.setdefault(record["op"], []).append(record)
            case "refused" | "failed" | "unknown" as what:
                self.last[record["op"]] = record
                if what == "refused" and record["op"] in self.answers:
                    self.answers[record["op"]].append(record)
            case "heard":
                self.heard.append(record)
            case "begins" | "ends" as what:
                getattr(self.attempts[record["job"], record["attempt"]], what).append(record)

    def made(self) -> Iterator[tuple[str, Record, str]]:
        """Give each job that somebody was told of: the name that it should have, what was asked for, and its id."""
        for told in self.told:
            if told["verb"] in MAKING:
                pairs = zip(self.asked[told["op"]]["new"], told["jobs"], strict=False)  # a short one breaks a rule
                for number, (new, job) in enumerate(pairs):
                    yield f"{told['op']}.{number}", new, job
