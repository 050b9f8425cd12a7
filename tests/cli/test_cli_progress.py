"""Progress on stderr: a live line on a terminal, an occasional line elsewhere, nothing of it on stdout."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import MINFER, minfer

from minfer_models.cli.command import one_line
from minfer_models.cli.progress import PLAIN_EVERY, PlainLines
from minfer_models.settings import Settings


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
    seen = _on_a_terminal("run", str(tiny), "-p", "abc", "-n", "20")
    assert b"opening tiny-Q4_0.gguf" in seen
    assert b"compiling" not in seen
    assert _behind_the_line(seen).startswith(expected)


def test_a_terminal_sees_which_kernels_compile(tiny: Path, tmp_path: Path) -> None:
    """A start that finds two of its kernels missing; an empty cache would take this test half a minute."""
    expected = minfer("run", tiny, "-p", "abc", "-n", 20).out
    shutil.copytree(Settings.from_env().cache_dir / "kernels", tmp_path / "kernels")
    for path in [p for name in ("quantize.rms_norm*", "choose.choose*", "*.bundle") for p in tmp_path.rglob(name)]:
        path.unlink()
    seen = _on_a_terminal("run", str(tiny), "-p", "abc", "-n", "20", MINFER_CACHE_DIR=str(tmp_path))
    named = set(re.findall(rb"compiling kernels for this machine, once: ([a-z_.]+)", seen))
    assert named
    assert named <= {b"quantize.rms_norm", b"choose.choose"}  # the line is drawn ten times a second
    assert _behind_the_line(seen).startswith(expected)


def _on_a_terminal(*words: str, **variables: str) -> bytes:
    """What a terminal of 120 columns is sent by `minfer` with these words."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", **variables}
    with subprocess.Popen([*MINFER, *words], stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        seen = _read_all(master)
        assert process.wait(timeout=60) == 0
    return seen


def _behind_the_line(seen: bytes) -> str:
    """What came after the progress line was erased for the last time."""
    return seen[seen.rindex(b"\x1b[2K") + 4 :].decode().replace("\r\n", "\n")


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
