"""How many threads to walk with while other processes want the cores too.

Threads that meet at barriers go as fast as the slowest: with one busy neighbour on two cores, two threads are slower
than one. Bits don't depend on the number, so it may change from one walk to the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.2
"""Seconds between two looks at the cores: the kernel counts in hundredths."""
STALE = 2.0
"""Seconds after which the time since the last look says nothing about now."""
AT_WORK = 0.1
"""Share of the time since the last look that we must have run in: what others did while we rested says nothing."""
GIVE_UP = 0.4
"""Cores short of its threads at which one is given up: a neighbour that shares a core with us gets half of it."""
TAKE_UP = 0.25
"""Cores that a further thread's core may be short of, twice in a row, when it is taken up again."""
AGREEING = 2

_STAT = Path("/proc/stat")
_IDLE_FIELDS = (3, 4)  # idle, iowait
_NICE_FIELD = 1
_COUNTED_FIELDS = 7  # user nice system idle iowait irq softirq; the rest is the host's, or counted already


@dataclass(frozen=True, slots=True)
class Look:
    """Seconds on three clocks: the wall's, all processes' on the cores that we may use, and our own."""

    at: float
    busy: float
    own: float


class ThreadChoice:
    """Threads for the next walk, at most `most` of `cores`: from what looks at them say, with hysteresis.

    Pure: `see` is told everything it knows.
    """

    def __init__(self, most: int, cores: int) -> None:
        self._most, self._cores = most, cores
        self.threads = most
        self._last: Look | None = None
        self._agreeing = 0

    def see(self, look: Look) -> int:
        """The choice after one more look."""
        last, self._last = self._last, look
        if last is None or not 0 < look.at - last.at <= STALE:
            return self.threads
        if look.own - last.own < AT_WORK * (look.at - last.at):
            return self.threads
        others = ((look.busy - last.busy) - (look.own - last.own)) / (look.at - last.at)
        free = self._cores - max(others, 0.0)
        while self.threads > 1 and free < self.threads - GIVE_UP:
            self.threads -= 1
            self._agreeing = -1
        room = self.threads < self._most and free >= self.threads + 1 - TAKE_UP
        self._agreeing = self._agreeing + 1 if room else 0
        if self._agreeing >= AGREEING:
            self.threads = min(self._most, int(free + TAKE_UP))
            self._agreeing = 0
        return self.threads


class FreeCores:
    """Looks at the cores every `INTERVAL` and tells how many threads suit them."""

    def __init__(self, most: int, look: Callable[[], Look], cores: int) -> None:
        self._choice, self._look = ThreadChoice(most, cores), look
        self._due = 0.0

    def threads(self) -> int:
        """Threads for the walk that begins now."""
        now = time.perf_counter()
        if now >= self._due:
            self._due = now + INTERVAL
            with suppress(OSError):  # no file to be had just now: the choice stays
                self._choice.see(self._look())
        return self._choice.threads


def free_cores(most: int, stat: Path = _STAT) -> FreeCores | None:
    """What chooses up to `most` threads for this process; None where the system doesn't tell how busy its cores are."""
    if most == 1 or not hasattr(os, "sched_getaffinity") or not stat.exists():
        return None
    cpus = os.sched_getaffinity(0)
    return FreeCores(most, lambda: look_at(cpus, stat), len(cpus))


def look_at(cpus: Collection[int], stat: Path = _STAT) -> Look:
    """The clocks now. What runs niced yields to us and counts as idle, unless we are niced ourselves."""
    yielding = os.getpriority(os.PRIO_PROCESS, 0) <= 0
    ticks = sum(_busy_ticks(line.split(), yielding) for line in _lines_of(cpus, stat.read_text()))
    return Look(time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time())


def _lines_of(cpus: Collection[int], text: str) -> list[str]:
    names = {f"cpu{cpu}" for cpu in cpus}
    return [line for line in text.splitlines() if line.split(" ", 1)[0] in names]


def _busy_ticks(words: list[str], without_nice: bool) -> int:
    fields = [int(word) for word in words[1 : 1 + _COUNTED_FIELDS]]
    skipped = (*_IDLE_FIELDS, _NICE_FIELD) if without_nice else _IDLE_FIELDS
    return sum(ticks for i, ticks in enumerate(fields) if i not in skipped)
