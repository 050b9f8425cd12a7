"""CPU time that processes and the machine have used, where /proc says it."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
IDLE_FIELDS = (3, 4)
"""Of the first line of /proc/stat: idle and waiting for I/O; the first eight fields are all, guests counted in them."""


def process_seconds(pid: int, proc: Path = PROC) -> float | None:
    """Of a process and its threads, to a hundredth of a second; None where unknown."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def machine_seconds(proc: Path = PROC) -> float | None:
    """Of everything on all cores since boot, with what a hypervisor gave to others; None where unknown."""
    try:
        fields = (proc / "stat").read_text().split("\n", 1)[0].split()[1:9]
        busy = sum(int(f) for i, f in enumerate(fields) if i not in IDLE_FIELDS)
        return busy / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def pair_seconds(waiting: int, running: int, proc: Path = PROC) -> tuple[float, float, float] | None:
    """Of two processes and the machine; None unless all three are known."""
    found = process_seconds(waiting, proc), process_seconds(running, proc), machine_seconds(proc)
    a, b, machine = found
    return None if a is None or b is None or machine is None else (a, b, machine)
