"""What each process did, in a file of its own: a line before it does something, and one when it knows what came of it.

A line is one write to a file that is only appended to, so a SIGKILL loses nothing that was said. `at` is of a clock
that nobody sets, the same for all processes of a machine; `wall` is what a store on it would write on a log just now.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Record = dict[str, Any]

#: Where the handlers of a campaign find the folder of its records.
FOLDER: Final = "LEFTFOLD_CHAOS_RECORDS"


def now() -> int:
    """Give nanoseconds since the machine was started, sleep and all."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Recorder:
    """The file of one process."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, what: str, **said: Any) -> None:
        """Write a line, whole, before anything else happens."""
        line = json.dumps({"at": now(), "wall": time.time_ns() // 1000, "what": what, **said}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def read(folder: Path) -> list[Record]:
    """Give all lines of all files, in the order of their times. `by` is the name of the file."""
    found = [record for file in sorted(folder.glob("*.jsonl")) for record in read_file(file)]
    return sorted(found, key=lambda record: int(record["at"]))


def read_file(file: Path) -> Iterator[Record]:
    """Give the lines of a file. Its last one may be cut off, if its process was killed; no other may."""
    *whole, _cut = file.read_bytes().split(b"\n")
    for number, line in enumerate(whole, start=1):
        try:
            record: Record = json.loads(line)
        except ValueError as problem:
            raise ValueError(f"line {number} of {file} is no record: {problem}") from problem
        yield {"by": file.stem, **record}


class Tally:
    """How many words of some kind are in the files by now; each look reads only what is new."""

    def __init__(self, folder: Path, word: str) -> None:
        self._folder, self._word = folder, f'"what":"{word}"'.encode()
        self._read: dict[Path, int] = {}
        self.count = 0

    def look(self) -> int:
        """Count on, and give the sum."""
        for file in self._folder.glob("*.jsonl"):
            with file.open("rb") as opened:
                opened.seek(self._read.get(file, 0))
                new = opened.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[file] = self._read.get(file, 0) + len(whole)
            self.count += whole.count(self._word)
        return self.count
