"""Compiling kernels in processes of their own, several at once."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from minfer_kernels.cpu.compiler.bundle import StoredKernel
from minfer_kernels.cpu.compiler.kernel import Operand

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from minfer_kernels.cpu.compiler.worker import main; main(sys.argv[1])"
)


class WorkerError(RuntimeError):
    """A kernel that a process didn't compile; the message has its reason."""


class CompileWorkers:
    """Up to `n` processes that compile for one instruction set; each starts when there is something for it."""

    def __init__(self, n: int, isa: str) -> None:
        self._n, self._isa = n, isa
        self._workers: list[_Worker] = []

    def operands(self, name: str) -> tuple[Operand, ...]:
        """What a kernel takes, as its source declares it. Raises WorkerError for a name that is no kernel."""
        (worker,) = self._ready(1)
        worker.ask("declare", name)
        return worker.answer()[1].operands

    def compile(self, names: Sequence[str], on_start: Callable[[str], None]) -> dict[str, StoredKernel]:
        """The named kernels; `on_start` hears of each as it is begun. Raises WorkerError for the first that fails."""
        waiting, found = deque(names), dict[str, StoredKernel]()
        try:
            with selectors.DefaultSelector() as answers:
                for worker in self._ready(min(self._n, len(names))):
                    answers.register(worker.answers, selectors.EVENT_READ, worker)
                    on_start(waiting[0])
                    worker.ask("compile", waiting.popleft())
                while len(found) < len(names):
                    for key, _ in answers.select():
                        name, stored = key.data.answer()
                        found[name] = stored
                        if waiting:
                            on_start(waiting[0])
                            key.data.ask("compile", waiting.popleft())
        except BaseException:
            self.close()  # what they still work on must not be taken for a later answer
            raise
        return found

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    def _ready(self, n: int) -> list[_Worker]:
        self._workers = [worker for worker in self._workers if worker.alive]
        while len(self._workers) < n:
            self._workers.append(_Worker(self._isa))
        return self._workers[:n]


class _Worker:
    """One process."""

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
        self._name = ""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def ask(self, what: str, name: str) -> None:
        """Have it compile or declare a kernel."""
        self._name = name
        with suppress(BrokenPipeError):  # the answer's absence says it
            self._requests.write(f"{what} {name}\n".encode())
            self._requests.flush()

    def answer(self) -> tuple[str, StoredKernel]:
        """Name and code of the kernel it was asked for."""
        line = self.answers.readline()
        if not line:
            raise WorkerError(f"kernel {self._name}: the compiling process ended with {self._process.wait()}")
        head = json.loads(line)
        code = self.answers.read(head["bytes"])
        if "error" in head:
            raise WorkerError(f"kernel {self._name}: {head['error']}")
        return self._name, StoredKernel(tuple(Operand(*pair) for pair in head["operands"]), code)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._requests.close()
        self.answers.close()
