"""The scripted model behind `--device scripted`, in this process or in one of its own.

As a program: plugged.py SCRIPT ARGUMENTS... runs `minfer ARGUMENTS...`, where SCRIPT names a function below.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minfer_models.synthetic.scripted import ScriptedBackend, answering

MARKER = b"[assistant]"
Answers = Callable[[bytes], bytes]


def last(prompt: bytes) -> bytes:
    """What the user said last."""
    return prompt.rpartition(b"[user]")[2].rpartition(b"\n")[0]


def echo(prompt: bytes) -> bytes:
    """Says it in capitals."""
    return last(prompt).upper()


def waiting(prompt: bytes) -> bytes:
    """As `echo`; asked to wait, the forward that gives `!` waits for Ctrl-C before it goes on."""
    return b"WAIT! AND MORE" if last(prompt) == b"wait" else echo(prompt)


def escaping(_prompt: bytes) -> bytes:
    """Says what would give the terminal another title."""
    return b"\x1b]0;title\x07"


def thinking(prompt: bytes) -> bytes:
    """Thinks before it says what `echo` says."""
    return b"<think>\nhm, so\n</think>\n\n" + echo(prompt)


class Scripted(ScriptedBackend):
    """One that counts as a plug-in."""

    def __init__(self, answers: Answers, at_forward: Callable[[list[int]], None] | None = None) -> None:
        super().__init__(answering(answers, MARKER), "scripted")
        self._follow, self._at_forward = self.script, at_forward
        self.script = self._seen

    def _seen(self, history: Any) -> int:
        if self._at_forward is not None:
            self._at_forward(list(history))
        return self._follow(history)


def entry_points(make: Callable[[], Scripted]) -> Callable[..., Any]:
    """What stands in for `importlib.metadata.entry_points`."""
    real = importlib.metadata.entry_points
    point = SimpleNamespace(name="scripted", load=lambda: make)

    def found(**wanted: Any) -> Any:
        return [point] if wanted.get("group") == "minfer.backends" else real(**wanted)

    return found


class _CtrlC:
    """Has the forward behind `WAIT` last until Ctrl-C was pressed; its signal is listened for from `WA` on."""

    def __call__(self, history: list[int]) -> None:
        said = bytes(token for token in history if token < 256)
        if said.endswith(MARKER + b"WA"):
            self._heard, told = os.pipe()
            os.set_blocking(told, False)
            self._before = signal.set_wakeup_fd(told)
        if said.endswith(MARKER + b"WAIT"):
            os.read(self._heard, 1)
            signal.set_wakeup_fd(self._before)


def main() -> None:
    from minfer_models.cli.main import run

    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # keys such as Ctrl-C reach this process
    answers = {"echo": echo, "waiting": waiting, "escaping": escaping, "thinking": thinking}[sys.argv[1]]
    importlib.metadata.entry_points = entry_points(lambda: Scripted(answers, _CtrlC()))
    sys.argv = ["minfer", *sys.argv[2:]]
    run()


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
