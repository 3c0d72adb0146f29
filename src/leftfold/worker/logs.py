"""Log lines that say which job they are about: every line that a handler writes, by whatever logger."""

import json
import logging
import sys
import time
from typing import Any, Final, Literal, TextIO

from leftfold.app.context import current_or_none
from leftfold.store.replies import Claim

Format = Literal["text", "json"]

#: What every record has; whatever else stands on one, somebody put there.
_USUAL: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "job_id", "job_kind", "attempt"})


#: Names of ours in a JSON line; of users' own of the same name, an underscore stands behind it.
_OURS: Final = frozenset({"at", "level", "logger", "message", "kind", "traceback", "stack"})


def about(claim: Claim) -> dict[str, Any]:
    """Give what a line about a job has as `extra=` where it is not the job that says it."""
    return {"job_id": claim.job_id, "job_kind": claim.kind, "attempt": claim.attempt}


class JobFilter(logging.Filter):
    """Puts the current job's id, kind and attempt on each record that does not say itself which job it is about."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything pass."""
        if getattr(record, "job_id", None) is not None:
            return True
        job = current_or_none()
        record.job_id = job.job_id if job else None
        record.job_kind = job.kind if job else None
        record.attempt = job.attempt if job else None
        return True


def _clean(text: str) -> str:
    """Spell control characters out: whoever writes an error's text must not write log lines of his own."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _message(record: logging.LogRecord) -> str:
    """Give what a record says, also where its arguments do not fit: to raise would write a traceback in between."""
    try:
        return record.getMessage()
    except Exception as problem:  # noqa: BLE001 - of users' own objects
        return f"{record.msg} {record.args!r} ({type(problem).__name__}: {problem})"


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as one line, and the traceback behind it."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        job_id = getattr(record, "job_id", None)
        kind, attempt = getattr(record, "job_kind", None) or "job", getattr(record, "attempt", None)
        job = f" [{kind} {job_id} attempt {attempt}]" if job_id else ""
        line = f"{stamp}.{int(record.msecs):03d}Z {record.levelname:<7} {record.name}{job} "
        behind = self.formatException(record.exc_info).splitlines() if record.exc_info else []
        behind += record.stack_info.splitlines() if record.stack_info else []
        return "\n    ".join([line + _clean(_message(record)), *map(_clean, behind)])


class JsonFormatter(logging.Formatter):
    """Lines for programs: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as an object."""
        told = {name: value for name, value in vars(record).items() if name not in _USUAL}
        told = {f"{name}_" if name in _OURS else name: value for name, value in told.items()}
        told |= {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if getattr(record, "job_id", None):
            names = {"job_id": "job_id", "kind": "job_kind", "attempt": "attempt"}
            told |= {name: getattr(record, field, None) for name, field in names.items()}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = record.stack_info
        try:
            return json.dumps(told, default=str, skipkeys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # of what somebody put there: it is shown as Python shows it
            return json.dumps({name: value if isinstance(value, int) else str(value) for name, value in told.items()})


def set_up(level: str = "INFO", form: Format = "text", stream: TextIO | None = None) -> None:
    """Let the root logger write such lines, to standard error unless told otherwise.

    What the app itself has set up stays, and its records say as well which job they are about; only what would write
    the same to standard error once more goes.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [*(each for each in root.handlers if not _is_to_a_terminal(each)), handler]
    for each in root.handlers:
        each.addFilter(JobFilter())
    root.setLevel(level.upper())


def _is_to_a_terminal(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in {sys.stderr, sys.stdout}
