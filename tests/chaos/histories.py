"""A good history of six jobs, written by hand: what every process recorded, and what stands on the logs."""

from typing import Any, NamedTuple

from chaos.history import Event, walk
from chaos.records import Record
from chaos.story import Row, Story

LEASE = 2_000_000
LONG_AFTER = 10**9
POLICY = {"max_failures": 3, "lease": LEASE}


class Past(NamedTuple):
    """Everything that a checker looks at, to be bent by a test. Rows follow from the logs, unless they are given."""

    logs: dict[str, list[Event]]
    records: list[Record]
    rows: dict[str, Row]
    findings: list[str]

    def story(self) -> Story:
        rows = {job: row_of(log) for job, log in self.logs.items() if log}
        return Story(self.logs, {**rows, **self.rows}, sorted(self.records, key=lambda each: each["at"]), self.findings)

    def change(self, job: str, number: int, /, **changes: Any) -> None:
        """Write over an event."""
        self.logs[job][number - 1] = self.logs[job][number - 1]._replace(**changes)

    def drop(self, job: str, *versions: int) -> None:
        """Take events out, and number the others anew."""
        kept = [event for event in self.logs[job] if event.version not in versions]
        self.logs[job] = [event._replace(version=number) for number, event in enumerate(kept, start=1)]

    def insert(self, job: str, version: int, name: str, who: str, actor: str, **data: Any) -> None:
        """Put an event before the one of that version, and number the others anew."""
        log = self.logs[job]
        at = log[version - 2].at
        log.insert(version - 1, Event(version, at, name, who, actor, data))
        self.logs[job] = [event._replace(version=number) for number, event in enumerate(log, start=1)]

    def record(self, what: str, **found: Any) -> Record:
        """Find the record that says this."""
        return next(each for each in self.records if each["what"] == what and found.items() <= each.items())


def row_of(log: list[Event]) -> Row:
    *_, last = walk(log)
    return Row(last.after, len(log), last.attempt, last.failures)


def log_of(op: str, kind: str, start: int, *said: tuple[Any, ...], key: str | None = None) -> list[Event]:
    """Give a log: each event half a second after the one before, but for those that bring their own pause."""
    spec = {"kind": kind, "payload": {"op": op}} | ({"key": key} if key else {})
    log = [Event(1, start, "enqueued", "client", "client-0", {"policy": POLICY, "spec": spec}, op.rpartition(".")[0])]
    for name, who, actor, data, *rest in said:
        pause = rest[0] if rest else 500_000
        request = rest[1] if len(rest) > 1 else None
        log.append(Event(len(log) + 1, log[-1].at + pause, name, who, actor, data, request))
    return log


def claimed(actor: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return ("claimed", "worker", actor, {"token": "…", "lease": LEASE}), ("started", "owner", actor, {}, 0)


def taken(actor: str, end: int) -> tuple[Any, ...]:
    return "stalled", "keeper", "w2", {"owner": actor, "lease_until": end}, LEASE + 100_000


def failed(attempt: int) -> dict[str, Any]:
    return {"error": {"code": "error", "type": "RuntimeError", "message": f"attempt {attempt}"}}


def asked(at: int, op: str, verb: str, answer: dict[str, Any], **said: Any) -> list[Record]:
    return [
        {"at": at, "by": "client-0", "what": "asks", "op": op, "verb": verb, **said},
        {"at": at + 1, "by": "client-0", "what": "told", "op": op, "verb": verb, **answer},
    ]


def made(at: int, op: str, verb: str, job: str, kind: str, key: str | None = None) -> list[Record]:
    answer = {"jobs": [job], "seen": [[job, 1, "queued"]]}
    return asked(at, op, verb, answer, new=[{"kind": kind, "key": key}], request=verb != "one")


def worked(job: str, attempt: int, begin: int, end: int | None, how: str = "returned") -> list[Record]:
    said = {"by": "handlers", "wall": LONG_AFTER, "job": job, "attempt": attempt}
    begins = [{"at": begin, "what": "begins", "key": f"{job}:effect", "isolated": False, **said}]
    return begins if end is None else [*begins, {"at": end, "what": "ends", "how": how, "stopped": False, **said}]


def heard(at: int, job: str, attempt: int, **said: Any) -> Record:
    return {"at": at, "by": "handlers", "what": "heard", "job": job, "attempt": attempt, "key": "go", **said}


def good() -> Past:
    """A failure, a loss and a handler that comes back late, a wait, a cancellation, poison, and a key used again."""
    second = 1_000_000
    flaky = log_of(
        "c-1.0", "flaky", second, *claimed("w1"), ("retried", "owner", "w1", failed(1)), *claimed("w2"),
        ("succeeded", "owner", "w2", {"result": {"attempt": 2}}),
    )  # fmt: skip
    lost = log_of(
        "c-2.0", "slow", second, *claimed("w1"), taken("w1", 3_500_000), ("requeued", "keeper", "w2", {}, 0),
        *claimed("w2"), ("progress", "owner", "w2", {"fraction": 0.5, "message": "attempt 2"}),
        ("succeeded", "owner", "w2", {"result": {"attempt": 2}}), key="key-1",
    )  # fmt: skip
    asks = log_of(
        "c-3.0", "asks", second, *claimed("w1"), ("suspended", "owner", "w1", {}),
        ("resumed", "client", "client-0", {"key": "go", "payload": "go"}, 500_000, "c-7"), *claimed("w1"),
        ("succeeded", "owner", "w1", {"result": {"attempt": 2}}),
    )  # fmt: skip
    stopped = log_of(
        "c-4.0", "patient", second, *claimed("w1"), ("cancel_requested", "client", "client-0", {}, 0, "c-8"),
        ("cancelled", "owner", "w1", {"mode": "soft"}),
    )  # fmt: skip
    end = 1_500_000
    poison = log_of(
        "c-5.0", "poison", second, *claimed("w1"), taken("w1", end + LEASE), ("requeued", "keeper", "w2", {}, 0),
        *claimed("w2"), ("retried", "owner", "w2", {"error": {"code": "crashed", "message": "SIGKILL"}}),
        *claimed("w2"),
        ("dead_lettered", "owner", "w2", {"reason_code": "exhausted_retries",
                                          "error": {"code": "crashed", "message": "SIGKILL"}}),
    )  # fmt: skip
    again = log_of(
        "c-6.0", "slow", 9 * second, *claimed("w2"), ("succeeded", "owner", "w2", {"result": {"attempt": 1}}),
        key="key-1",
    )  # fmt: skip
    names = {"flaky": flaky, "lost": lost, "asks": asks, "stopped": stopped, "poison": poison, "again": again}
    records = [
        *made(10, "c-1", "one", "flaky", "flaky"),
        *made(20, "c-2", "keyed", "lost", "slow", "key-1"),
        *made(30, "c-3", "requested", "asks", "asks"),
        *made(40, "c-4", "requested", "stopped", "patient"),
        *made(50, "c-5", "requested", "poison", "poison"),
        *made(60, "c-6", "keyed", "again", "slow", "key-1"),
        *asked(70, "c-7", "signal", {"seen": [["asks", 5, "queued"]], "changed": True}, job="asks"),
        *asked(80, "c-8", "cancel", {"seen": [["stopped", 4, "running"]], "changed": True}, job="stopped", mode="soft"),
        *asked(90, "c-9", "get", {"seen": [["lost", 3, "running"]]}, job="lost"),
        *worked("flaky", 1, 100, 110, "RuntimeError"), *worked("flaky", 2, 120, 130),
        *worked("lost", 1, 200, 260), *worked("lost", 2, 240, 250),  # the first one was stopped, and came back
        *worked("asks", 1, 300, 310, "Suspension"), *worked("asks", 2, 320, 330),
        heard(325, "asks", 2, expired=False, answer="go"),
        *worked("stopped", 1, 400, 410, "CancelledError"),
        *worked("poison", 1, 500, None), *worked("poison", 2, 510, None), *worked("poison", 3, 520, None),
        *worked("again", 1, 600, 610),
    ]  # fmt: skip
    return Past(names, records, {}, [])
