"""Log lines that say which job they are about: every line that a handler writes, by whatever logger."""

import json
import logging
import sys
import time
from typing import Any, Final, Literal, TextIO

from leftfold.app.context import current_or_none

Format = Literal["text", "json"]

#: What every record has; whatever else stands on one, somebody put there.
_USUAL: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "job_id", "job_kind", "attempt"})


class JobFilter(logging.Filter):
    """Puts the current job's id, kind and attempt on each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything pass."""
        job = current_or_none()
        record.job_id = job.job_id if job else None
        record.job_kind = job.kind if job else None
        record.attempt = job.attempt if job else None
        return True


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as one line, and the traceback behind it."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        job_id = getattr(record, "job_id", None)
        job = f" [{record.job_kind} {job_id} attempt {record.attempt}]" if job_id else ""  # type: ignore[attr-defined]  # by the filter
        line = f"{stamp}.{int(record.msecs):03d}Z {record.levelname:<7} {record.name}{job} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """Lines for programs: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as an object."""
        told: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if getattr(record, "job_id", None):
            told |= {"job_id": record.job_id, "kind": record.job_kind, "attempt": record.attempt}  # type: ignore[attr-defined]  # by the filter
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        told |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        return json.dumps(told, default=str, ensure_ascii=False)


def set_up(level: str = "INFO", form: Format = "text", stream: TextIO | None = None) -> None:
    """Let the root logger write such lines, to standard error unless told otherwise."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(JobFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
