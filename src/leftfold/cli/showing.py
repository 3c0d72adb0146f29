"""Jobs and their histories as people read them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
import msgspec
from msgspec import Raw

from leftfold.cli.text import ago, clean, clock, shorten, span, table, terminal_width
from leftfold.core import events as e
from leftfold.core.job import Job
from leftfold.core.lifecycle import State
from leftfold.core.record import Record
from leftfold.core.values import Failure, Spec, Wait
from leftfold.dialects.dialect import Dialect
from leftfold.store.replies import Summary

#: How a state looks: what goes well is green, what needs a look is red, what waits or tries again in between.
STYLES: Final[dict[State, dict[str, Any]]] = {
    State.INBOX:         {"fg": "white"},
    State.QUEUED:        {"fg": "cyan"},
    State.RETRYING:      {"fg": "yellow"},
    State.CLAIMED:       {"fg": "blue"},
    State.RUNNING:       {"fg": "blue", "bold": True},
    State.WAITING:       {"fg": "magenta"},
    State.PARKED:        {"fg": "magenta"},
    State.STALLED:       {"fg": "yellow", "bold": True},
    State.SUCCEEDED:     {"fg": "green"},
    State.FAILED:        {"fg": "red"},
    State.CANCELLED:     {"dim": True},
    State.DEAD_LETTERED: {"fg": "red", "bold": True},
}  # fmt: skip

SHORT_ID: Final = 18  # the time and the counter in an id: two jobs of one process never share them
_ERROR_CHARS: Final = 60  # of an error, in a table
_DATA_CHARS: Final = 200  # of an event's data, where there is no terminal whose width would say
#: What an event says that is said better elsewhere: `jobs show`, `--json`, another column.
_UNTOLD: Final = frozenset({
    "policy", "token", "last_error", "attempts", "last_owner", "last_lease_expires_at", "lease_until", "correlation_id",
    "incident",
})  # fmt: skip
_SPEAKING: Final = frozenset({"reason", "message", "text", "reason_code", "mode"})  # no need to say what they are
_EVENT: Final = max(len(event.wire) for event in e.TRANSITIONS)  # columns; of the notes some are longer
_LEAST_DATA: Final = 30  # columns that the data should have; where there are fewer, the time is told in short


def styled(state: State, name: str | None = None) -> str:
    """Give a state in its colour."""
    return click.style(name or state.value, **STYLES[state])


def job_table(jobs: Sequence[Summary], now: int) -> list[str]:
    """Give jobs as a table, without the columns that nobody uses, or that the terminal has no room for."""
    columns = {
        "id": shown_ids([job.id for job in jobs]),
        "state": [styled(job.state) for job in jobs],
        "kind": [job.kind for job in jobs],
        "queue": [job.queue for job in jobs],
        "when": [_when(job, now) for job in jobs],
        "key": [clean(job.key or "") for job in jobs],
        "age": [span(max(now - job.created_at, 0)) for job in jobs],
        "attempt": [str(job.attempt or "") for job in jobs],
        "priority": [str(job.priority or "") for job in jobs],
        "tenant": [job.tenant for job in jobs],
        "correlation": [clean(job.correlation_id or "") for job in jobs],
    }
    return fitted(columns, least=4)


def fitted(columns: dict[str, list[str]], least: int) -> list[str]:
    """Give columns as a table, without those that are empty, and the last ones where the terminal has no room."""
    width = terminal_width()
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    lines = _rows(shown)
    while width is not None and len(shown) > least and max(len(click.unstyle(line)) for line in lines) > width:
        shown.popitem()
        lines = _rows(shown)
    return lines


def shown_ids(ids: Sequence[str]) -> list[str]:
    """Give ids as lists show them: on a terminal, their beginnings."""
    return list(ids) if terminal_width() is None else _short_ids(ids)


def _rows(columns: dict[str, list[str]]) -> list[str]:
    return table(list(columns), list(zip(*columns.values(), strict=True)))


def _short_ids(ids: Sequence[str]) -> list[str]:
    """Shorten ids to what tells them apart from each other."""
    length = SHORT_ID
    while length < max(map(len, ids), default=0) and len({job_id[:length] for job_id in ids}) < len(ids):
        length += 1
    return [job_id[:length] for job_id in ids]


def _when(job: Summary, now: int) -> str:
    """Say what a job waits for, and until when."""
    if job.frozen:
        return click.style("frozen", fg="red", bold=True)
    if job.due is not None:
        return "due" if job.due <= now else f"due {ago(job.due, now)}"
    if job.owner is not None and job.until is not None:
        lease = f"{span(job.until - now)} left" if job.until > now else "lease expired"
        return f"{clean(job.owner)}, {'to stop' if job.cancel_requested else lease}"
    return "" if job.deadline is None else f"deadline {ago(job.deadline, now)}"


def job_lines(job: Job, now: int, called: str = "", *, frozen: bool = False) -> list[str]:
    """Give everything about a job, a line for each thing."""
    rows = list(_facts(job, now, called))
    if frozen:
        told = f"nobody claims or changes it: `leftfold verify --job {job.id}` says why"
        rows.insert(2, ("frozen", click.style(told, fg="red")))
    width = max(len(name) for name, _ in rows)
    return [f"{click.style(name.ljust(width), dim=True)}  {value}" for name, value in rows]


def _facts(job: Job, now: int, called: str) -> Iterator[tuple[str, str]]:
    spec = job.spec
    yield "id", click.style(job.id, bold=True)
    yield "state", styled(job.state) + called
    yield "kind", spec.kind
    yield "queue", f"{spec.queue}, priority {spec.priority}"
    for name in ("tenant", "key", "correlation_id", "cause"):
        if getattr(spec, name):
            yield name, clean(getattr(spec, name))
    yield "created", f"{clock(job.created_at)}, {ago(job.created_at, now)}"
    yield "updated", f"{clock(job.updated_at)}, {ago(job.updated_at, now)}"
    yield "version", f"{job.version}, rev {job.rev}"
    yield "attempts", f"{job.attempt}, failures {job.failures} of {job.policy.max_failures}"
    if job.due is not None:
        yield "due", f"{clock(job.due)}, {ago(job.due, now)}"
    if job.lease is not None:
        yield "lease", f"{clean(job.lease.owner)} until {clock(job.lease.until)}, {ago(job.lease.until, now)}"
    if job.wait is not None:
        yield "waits", _wait(job.wait, now)
    if job.incident is not None:
        yield "incident", f"{job.incident}{_settled(job, now)}"
    if job.cancel_requested_at is not None:
        yield "cancel", f"requested {ago(job.cancel_requested_at, now)}"
    yield "payload", _json(spec.payload)
    if job.result is not None:
        yield "result", _json(job.result)
    for name, failure in (("error", job.error), ("last error", job.last_error)):
        if failure is not None and not (name == "last error" and failure == job.error):
            yield name, _failure(failure)
    for key, answer in job.answers.items():
        yield f"answer {clean(key)}", "expired" if answer.expired else _json(answer.payload)


def _settled(job: Job, now: int) -> str:
    return "" if job.resolved_at is None else f", resolved {ago(job.resolved_at, now)}"


def history_lines(records: Sequence[Record], dialect: Dialect | None = None, *, indent: int = 0) -> list[str]:
    """Give a log, a line per event; in a dialect's words where one is given. So many columns stand before it."""
    head = ["", "time", "", "event", *(["state"] if dialect else []), "by", "data"]
    steps = {step.record.version: step for step in dialect.project(records)} if dialect else {}
    rows, before, state, attempt = [], records[0].at if records else 0, "", 0
    for record in records:
        attempt += isinstance(record.event, e.Claimed)
        said = [click.style(record.event.wire, fg="cyan")]
        if dialect is not None:
            step = steps.get(record.version)
            state = step.move.target if step else state
            said = [f"({record.event.wire})" if step is None else _said(step.move.event, ours=step.ours), state]
        since = "" if record.version == 1 else f"+{span(record.at - before)}"
        rows.append([str(record.version), clock(record.at), since, *said, _who(record), _data(record, attempt)])
        before = record.at
    return [f"{' ' * indent}{line}" for line in _fitting(head, rows, indent)]


def event_lines(records: Sequence[Record]) -> list[str]:
    """Give events of any jobs, a line for each: other lines may come behind them, so the columns are fixed.

    A terminal, which has little room, gets the time of day and the beginning of the id, as in a list of jobs.
    """
    width = terminal_width()
    lines = []
    for record in records:
        name = click.style(record.event.wire.ljust(_EVENT), fg="cyan")
        when, job_id = clock(record.at), record.job_id
        if width is not None:
            when, job_id = when[11:-1], job_id[:SHORT_ID]
        told = f"{when}  {job_id}  {record.version:>3}  {name}"
        more = "  ".join(filter(None, [_who(record), _data(record, None)]))
        room = _DATA_CHARS if width is None else max(width - len(click.unstyle(told)) - 2, _LEAST_DATA // 2)
        lines.append(f"{told}  {shorten(more, room)}".rstrip())
    return lines


def _who(record: Record) -> str:
    return record.who.value if record.who.value == record.actor else f"{record.who} {clean(record.actor)}"


def _said(event: str | None, *, ours: bool) -> str:
    return click.style(f"{event}{'*' * ours}", fg="cyan") if event else "—"


def _fitting(head: list[str], rows: list[list[str]], before: int) -> list[str]:
    """Cut the last column to what the terminal has room for behind so many columns."""
    width = terminal_width()
    if width is None:
        return table(head, [[*row[:-1], shorten(row[-1], _DATA_CHARS)] for row in rows])
    width -= before
    room = _room(head, rows, width)
    if room < _LEAST_DATA:
        rows = [[row[0], row[1][11:19], *row[2:]] for row in rows]
        room = max(_room(head, rows, width), _LEAST_DATA)
    return table(head, [[*row[:-1], shorten(row[-1], room)] for row in rows])


def _room(head: list[str], rows: list[list[str]], width: int) -> int:
    others = table([*head[:-1], "|"], [[*row[:-1], "|"] for row in rows])
    return width - len(click.unstyle(others[0])) + 1


def _data(record: Record, attempt: int | None) -> str:
    """Say what is worth knowing of an event beside its name. Which attempt it is, the event itself does not tell."""
    event = record.event
    told = [f"attempt {attempt}"] if isinstance(event, e.Claimed) and attempt else []
    for field in sorted(event.__struct_fields__, key=lambda name: name != "reason"):
        value = getattr(event, field)
        if field not in _UNTOLD and not _is_default(event, field, value):
            told.append(_told(record, field, value))
    return ", ".join(filter(None, told))


def _is_default(event: e.AnyEvent, field: str, value: object) -> bool:
    described = next(each for each in msgspec.structs.fields(event) if each.name == field)
    return value in (described.default, (), {}, None)


def _told(record: Record, field: str, value: Any) -> str:
    match field, value:
        case "due", int():
            return "" if value <= record.at else f"due in {span(value - record.at)}"
        case "lease", int():
            return f"for {span(value)}"
        case "owner", _ if value == record.actor:
            return ""
        case _, Spec():
            payload = "" if bytes(value.payload) == b"null" else f" {_json(value.payload)}"
            return f"{value.kind} in {value.queue}{payload}"
        case _, Wait():
            return _wait(value, record.at)
        case _, Failure():
            return _failure(value)
        case _, Raw():
            return _json(value)
        case "fraction", float():
            return f"{value:.0%}"
        case (("lease_until" | "last_lease_expires_at"), int()):
            return f"lease until {clock(value)}"
        case _, str():
            return clean(value) if field in _SPEAKING else f"{field} {clean(value)}"
        case _:
            return f"{field} {clean(msgspec.json.encode(value).decode())}"


def _wait(wait: Wait, now: int) -> str:
    jobs = f" {' '.join(wait.jobs)}" if wait.jobs else ""
    deadline = "" if wait.deadline is None else f", deadline {ago(wait.deadline, now)}"
    return f"for {wait.until} {clean(wait.key)}{jobs}{deadline}"


def error_line(failure: Failure, most: int | None = _ERROR_CHARS) -> str:
    """Give an error in one line: its type, and the first line of its message."""
    kind = (failure.type or failure.code).rpartition(".")[2]
    line = clean(f"{kind}: {failure.message}".partition("\n")[0])
    return line if most is None else shorten(line, most)


def _failure(failure: Failure) -> str:
    kind = f" ({clean(failure.type)})" if failure.type else ""
    return f"{failure.code}: {clean(failure.message)}{kind}" if failure.message else f"{failure.code}{kind}"


def _json(payload: Raw) -> str:
    return clean(msgspec.json.format(bytes(payload), indent=0).decode())
