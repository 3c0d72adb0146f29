"""Records outlive whoever wrote them: what was said is there, and only the last word may be cut off."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.records import Recorder, Tally, read, read_file

WRITES_UNTIL_KILLED = """
import sys
from itertools import count
from pathlib import Path
from chaos.records import Recorder
recorder = Recorder(Path(sys.argv[1]), "victim")
for number in count():
    recorder.note("counts", number=number)
    print(number, flush=True)
"""


def test_what_was_written_before_a_sigkill_is_there(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    victim = subprocess.Popen(
        [sys.executable, "-c", WRITES_UNTIL_KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert victim.stdout is not None
    heard = [int(victim.stdout.readline()) for _ in range(200)]
    victim.send_signal(signal.SIGKILL)
    heard += [int(line) for line in victim.stdout.read().splitlines() if line]
    assert victim.wait() == -signal.SIGKILL
    victim.stdout.close()
    written = [record["number"] for record in read_file(tmp_path / "victim.jsonl")]
    assert written[: len(heard)] == heard == list(range(len(heard)))
    assert len(written) - len(heard) <= 1, "it writes before it acts"


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    Recorder(tmp_path, "one").note("asks", op="a")
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"at":1,"what":"to')
    assert [record["op"] for record in read(tmp_path)] == ["a"]


@pytest.mark.parametrize("line", [b'{"at":1,"what":"to\n', b"\n", b"\0\0\0\n"])
def test_a_line_in_the_middle_that_is_none_is_an_error(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "one.jsonl").write_bytes(line + b'{"at":2,"what":"told"}\n')
    with pytest.raises(ValueError, match=r"line 1 of .* is no record"):
        read(tmp_path)


def test_records_of_all_files_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    first, second = Recorder(tmp_path, "z"), Recorder(tmp_path, "a")
    for recorder, what in ((first, "one"), (second, "two"), (first, "three")):
        recorder.note(what)
    assert [(each["by"], each["what"]) for each in read(tmp_path)] == [("z", "one"), ("a", "two"), ("z", "three")]


def test_two_recorders_of_one_file_write_over_nothing(tmp_path: Path) -> None:
    for number in range(3):
        Recorder(tmp_path, "one").note("counts", number=number)
    assert [record["number"] for record in read(tmp_path)] == [0, 1, 2]


def test_a_tally_counts_each_word_once_and_no_half_ones(tmp_path: Path) -> None:
    tally = Tally(tmp_path, "told")
    recorder = Recorder(tmp_path, "one")
    recorder.note("told", op="a")
    recorder.note("asks", op="b")
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"at":1,"what":"told"')
        file.flush()
        assert (tally.look(), tally.look()) == (1, 1)
        file.write(b"}\n")
    assert tally.look() == 2
    os.truncate(tmp_path / "one.jsonl", 0)
    assert tally.look() == 2
