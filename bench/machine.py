"""What the figures were taken on."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def about() -> dict[str, str]:
    """Give what a reader needs to compare: the processor, its cores, memory, system, interpreter, day."""
    return {
        "processor": _line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{int((_line('/proc/meminfo', 'MemTotal') or '0').split()[0]) // 2**20} GiB",
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
        "day": datetime.now(UTC).date().isoformat(),
    }


def _line(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else ():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""
