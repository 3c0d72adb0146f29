"""What processes cost: their processor time and their memory, with those of their children."""

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_OWN: Final = ("Private_Clean:", "Private_Dirty:")


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # it is gone


def tree(pid: int) -> list[int]:
    """Give a process and all that descend from it."""
    parents = {int(each): stat[1] for each in os.listdir("/proc") if each.isdigit() and (stat := _stat(int(each)))}
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == str(each)]
    return found


def seconds(pid: int | None) -> float:
    """Give the processor time of a tree of processes so far, those that have ended included."""
    if pid is None:
        return 0.0
    total = 0
    for each in tree(pid):
        if stat := _stat(each):
            total += sum(map(int, stat[11:15] if each == pid else stat[11:13]))
    return total / _TICKS


def memory(pid: int) -> int:
    """Give what a tree of processes has in memory for itself. What it shares depends on who else runs."""
    total = 0
    for each in tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_OWN))
    return total
