"""A process that keeps one core busy, while it is let."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from minfer_models.bench.workload import BenchError

# It ends with us even when we are killed: its parent is then another process.
PROGRAM = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent:\n    for _ in range(100000): pass\n"
START_SECONDS = 0.5
"""What the interpreter takes to start, with room: a neighbour that sleeps is none."""


class Neighbour:
    """A busy process on one of the cores that this process may use; asleep outside of `busy`. Close it when done.

    `cpu` is the core's number. Raises BenchError where a process can't be kept to a core, or there is no other one.
    """

    def __init__(self) -> None:
        if not hasattr(os, "sched_setaffinity"):
            raise BenchError(f"a neighbour is kept to one core, which {sys.platform} has no call for")
        cpus = os.sched_getaffinity(0)
        if len(cpus) < 2:
            raise BenchError(f"a neighbour takes one core and leaves the others: this process may run on {len(cpus)}")
        self.cpu = max(cpus)
        command = [sys.executable, "-S", "-E", "-c", PROGRAM, str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            os.sched_setaffinity(self._process.pid, {self.cpu})
            time.sleep(START_SECONDS)
            self._process.send_signal(signal.SIGSTOP)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @contextmanager
    def busy(self) -> Iterator[None]:
        """It keeps its core busy meanwhile; raises BenchError when it has ended."""
        if (code := self._process.poll()) is not None:
            raise BenchError(f"the busy neighbour ended with {code}")
        self._process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
