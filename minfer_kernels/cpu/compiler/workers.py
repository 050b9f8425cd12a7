"""Compiling kernels in processes of their own, several at once."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minfer_kernels.cpu.compiler.bundle import StoredKernel
from minfer_kernels.cpu.compiler.kernel import Operand

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from minfer_kernels.cpu.compiler.worker import main; main(sys.argv[1])"
)


class WorkerError(RuntimeError):
    """A kernel that a process refused to compile; the message has its reason."""


class WorkerEndedError(RuntimeError):
    """A process that ended instead of answering: it was killed, for its memory perhaps. The message says how."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The kernels that were `found`. `lost` are those whose process ended meanwhile, and how it did."""

    found: dict[str, StoredKernel]
    lost: dict[str, str]


class CompileWorkers:
    """Up to `n` processes that compile for one instruction set; each starts when there is something for it."""

    def __init__(self, n: int, isa: str) -> None:
        self._n, self._isa = n, isa
        self._workers: list[_Worker] = []

    def operands(self, name: str) -> tuple[Operand, ...]:
        """What a kernel takes, as its source declares it.

        Raises WorkerError for a name that is no kernel, WorkerEndedError when the process ends.
        """
        (worker,) = self._ready(1)
        worker.ask("declare", name)
        return worker.answer().operands

    def compile(self, names: Sequence[str], on_start: Callable[[str], None]) -> Compiled:
        """The named kernels; `on_start` hears of each as it is begun. Raises WorkerError for the first that fails.

        A process that ends isn't started anew: it may be memory that is short. What it worked on is lost, the others
        do the rest; once all have ended, what is left is lost too.
        """
        compiled, waiting = Compiled({}, {}), deque(names)
        try:
            with selectors.DefaultSelector() as answers:
                for worker in self._ready(min(self._n, len(names))):
                    answers.register(worker.answers, selectors.EVENT_READ, worker)
                    on_start(waiting[0])
                    worker.ask("compile", waiting.popleft())
                while answers.get_map():
                    for key, _ in answers.select():
                        if _answered(key.data, compiled) and waiting:
                            on_start(waiting[0])
                            key.data.ask("compile", waiting.popleft())
                        else:
                            answers.unregister(key.fileobj)
        except BaseException:
            self.close()  # what they still work on must not be taken for a later answer
            raise
        compiled.lost.update(dict.fromkeys(waiting, "all compiling processes ended"))
        return compiled

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    def _ready(self, n: int) -> list[_Worker]:
        for worker in self._workers:
            if not worker.alive:
                worker.close()
        self._workers = [worker for worker in self._workers if worker.alive]
        while len(self._workers) < n:
            self._workers.append(_Worker(self._isa))
        return self._workers[:n]


def _answered(worker: _Worker, compiled: Compiled) -> bool:
    """Take in its answer; False when it ended instead."""
    try:
        stored = worker.answer()
    except WorkerEndedError as ended:
        compiled.lost[worker.name] = str(ended)
        return False
    compiled.found[worker.name] = stored
    return True


class _Worker:
    """One process. `name` is the kernel that it was asked for last."""

    def __init__(self, isa: str) -> None:
        # a session of its own: Ctrl-C is ours to handle, and it ends with its stdin
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, isa, str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self.answers = self._process.stdin, self._process.stdout
        self.name = ""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def ask(self, what: str, name: str) -> None:
        """Have it compile or declare a kernel."""
        self.name = name
        with suppress(BrokenPipeError):  # the answer's absence says it
            self._requests.write(f"{what} {name}\n".encode())
            self._requests.flush()

    def answer(self) -> StoredKernel:
        """The kernel it was asked for; raises WorkerEndedError when less than a whole answer comes."""
        line = self.answers.readline()
        head: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {"bytes": 1}
        code = self.answers.read(head["bytes"])
        if len(code) < head["bytes"]:
            raise WorkerEndedError(f"the compiling process ended with {_said(self._process.wait())}")
        if "error" in head:
            raise WorkerError(f"kernel {self.name}: {head['error']}")
        return StoredKernel(tuple(Operand(*pair) for pair in head["operands"]), code)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._requests.close()
        self.answers.close()


def _said(code: int) -> str:
    """An exit code, or the name of the signal behind it."""
    return signal.Signals(-code).name if -code in signal.valid_signals() else str(code)
