"""Progress on stderr: a live line on a terminal, an occasional line elsewhere, nothing of it on stdout."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import MINFER, minfer

from minfer_models.cli.command import one_line
from minfer_models.cli.progress import PLAIN_EVERY, PlainLines


def test_a_line_every_so_often_and_none_for_what_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with PlainLines("minfer", clock=lambda: now[0]) as shown:
        for second in range(31):
            now[0] = float(second)
            shown.show(f"step {second}", second, 40)
        shown.stop()
        now[0] = 100.0
        shown.show("late")
    assert PLAIN_EVERY == 10
    assert capsys.readouterr().err.splitlines() == [
        "minfer: step 10 (25 %)", "minfer: step 20 (50 %)", "minfer: step 30 (75 %)",
    ]  # fmt: skip


def test_a_terminal_sees_a_line_that_is_gone_before_the_text_comes(tiny: Path) -> None:
    """Everything on one terminal, as a user has it: the text must come out in one piece."""
    expected = minfer("run", tiny, "-p", "abc", "-n", 20).out
    master, slave = pty.openpty()
    command = [*MINFER, "run", str(tiny), "-p", "abc", "-n", "20"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        seen = _read_all(master)
        assert process.wait(timeout=60) == 0
    assert b"opening tiny-Q4_0.gguf" in seen
    erased = seen.rindex(b"\x1b[2K")
    assert seen[erased + 4 :].decode().replace("\r\n", "\n").startswith(expected)


def _read_all(master: int) -> bytes:
    """What comes until the other side closes; a terminal reports that as an error."""
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    return seen


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("two\n  lines"), "two lines"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "/x: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (KeyError("k"), "KeyError: 'k' (a bug in minfer; --traceback shows where)"),
        (ValueError(), "ValueError: no message (a bug in minfer; --traceback shows where)"),
        (MemoryError("out of memory asking for 3 GiB"), "out of memory asking for 3 GiB"),
    ],
)
def test_an_error_is_one_line(error: Exception, shown: str) -> None:
    assert one_line(error) == shown


def test_the_entry_points_are_the_installed_commands() -> None:
    for name in ("minfer", "minfer-bench"):
        done = subprocess.run(
            [Path(sys.executable).parent / name, "--help"], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.startswith(f"Usage: {name} ")
