"""A process that answers requests: one JSON object a line each way, {"result": ...} or {"error": "..."}.

Its first line says {"ready": ...}, or {"error": ...} when it can't work; it ends with its stdin.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from minfer_models.bench.workload import BenchError

SECONDS_TO_END = 10


class ChildEndedError(BenchError):
    """The process ended instead of answering. `signal` is the name of the signal that ended it, None for an exit."""

    def __init__(self, message: str, by_signal: str | None) -> None:
        super().__init__(message)
        self.signal = by_signal


class Child:
    """The process, started by `command`; close it when done. `ready` is what its first line says.

    Raises BenchError, with what it is `called`, for whatever goes wrong in it.
    """

    def __init__(self, command: Sequence[str], called: str, cwd: Path | None = None) -> None:
        self._called = called
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        # a session of its own: Ctrl-C is ours to handle, and the child ends with its stdin
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        try:
            self.ready: Any = self._answer("ready")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, do: str, **arguments: Any) -> Any:
        """The result of one request."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer's absence says more
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer("result")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(SECONDS_TO_END)
        except BaseException:  # a second Ctrl-C must not leave it behind either
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _answer(self, kind: str) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        message = json.loads(line)
        if "error" in message:
            raise BenchError(f"{self._called}: {message['error']}")
        return message[kind]

    def _ended(self) -> ChildEndedError:
        code = self._process.wait()
        name = signal.Signals(-code).name if -code in signal.valid_signals() else None
        return ChildEndedError(f"{self._called}: its process ended with {name or code}: {self._last_words()}", name)

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
