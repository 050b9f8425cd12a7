"""Hostile files and names on the command line: one printable line, exit code 1, and a terminal that stays as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import MINFER, Outcome, error_line, minfer, usage_error

from minfer_models.cli.command import one_line
from minfer_models.cli.output import emit, stdout_writer
from minfer_models.gguf import array_source, write_gguf
from minfer_models.synthetic import SyntheticModel, write_model

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b1m"
COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "MODEL"),
    "dump": ("dump", "MODEL", "--stage", "build"),
    "trace": ("trace", "MODEL", "-p", "hi"),
    "run": ("run", "MODEL", "-p", "hi"),
    "tokenize": ("tokenize", "MODEL", "-p", "hi"),
}


def call(command: str, model: object) -> Outcome:
    return minfer(*(str(model) if word == "MODEL" else word for word in COMMANDS[command]))


def evil_file(folder: Path, **changes: Any) -> Path:
    """A file whose every text tries to write to the terminal, its name too."""
    model = SyntheticModel(n_blocks=1, width=64, ffn_width=64)
    metadata = {**model.gguf_metadata(), "general.name": f"good\n{EVIL}", f"x.{EVIL}": EVIL, f"y.{EVIL}": [EVIL, "b"]}
    tensors = [array_source(f"evil{EVIL}", np.ones(4, np.float32))]
    return write_gguf(folder / f"m{EVIL}.gguf", {**metadata, **changes}, tensors)[0]


def test_inspect_prints_no_control_characters(tmp_path: Path) -> None:
    path = evil_file(tmp_path)
    for options in ((), ("--tensors",), ("--json",)):
        outcome = minfer("inspect", path, *options)
        assert (outcome.code, outcome.err) == (0, "")
        assert all(line.isprintable() for line in outcome.out.split("\n")), outcome.out
        assert "owned" in outcome.out
    assert minfer("inspect", path, "--json").json()["metadata"]["general.name"]["value"] == f"good\n{EVIL}"


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("inspect", "tokenize")])
def test_a_hostile_model_is_refused_in_one_line(command: str, tmp_path: Path) -> None:
    line = error_line(call(command, evil_file(tmp_path)))
    assert line.isprintable()
    assert "m\\x1b]0;owned\\x07" in line
    line = error_line(call(command, evil_file(tmp_path, **{"general.architecture": EVIL * 1000})))
    assert "'general.architecture': is '\\x1b]0;owned\\x07" in line
    assert len(line) < 2000


def no_regular_files(folder: Path) -> dict[str, tuple[Path, str]]:
    fifo, loop, dangling = folder / "fifo", folder / "loop", folder / "dangling.gguf"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    dangling.symlink_to(folder / "nothing")
    (folder / "empty.gguf").touch()
    (folder / "folder").mkdir()
    return {
        "pipe": (fifo, "a device, pipe or socket"),
        "zeros": (Path("/dev/zero"), "/dev/zero is a device, pipe or socket"),
        "loop": (loop, "a symbolic link that leads to no file"),
        "dangling": (dangling, f"leads to no file ({folder / 'nothing'})"),
        "empty": (folder / "empty.gguf", "the file is empty"),
        "folder": (folder / "folder", "a folder without GGUF files"),
        "below a file": (folder / "empty.gguf" / "x.gguf", "no such file"),
        "long": (folder / ("x" * 300 + ".gguf"), "File name too long"),
        "odd": (folder / f"a b'\"$(){EVIL}\n.gguf", "no such file"),
    }


@pytest.mark.parametrize(
    "kind", ["pipe", "zeros", "loop", "dangling", "empty", "folder", "below a file", "long", "odd"]
)
def test_what_is_no_model_file(kind: str, tmp_path: Path) -> None:
    path, message = no_regular_files(tmp_path)[kind]
    for command in COMMANDS:
        line = error_line(call(command, path))
        assert message in line
        assert line.isprintable()


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, who may read everything."""
    path = tmp_path / f"m{EVIL}.gguf"
    path.touch()
    opened: Callable[..., Any] = Path.open

    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self == path:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    line = error_line(call("inspect", path))
    assert line.endswith(".gguf: Permission denied")
    assert line.isprintable()


def test_a_dangling_shard_beside_the_model_is_no_matter(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", SyntheticModel(n_blocks=1, width=64, ffn_width=64, n_ctx_train=64))
    (tmp_path / "m-00001-of-00002.gguf").symlink_to(tmp_path / "nothing")
    assert minfer("run", path, "-p", "hi", "-n", "1").code == 0


def test_errors_of_any_length_are_one_line() -> None:
    assert len(one_line(OSError(36, "File name too long", "x" * 1_000_000))) < 5_000
    assert one_line(ValueError(f"a\n{EVIL}" + "x" * 10_000)).isprintable()
    assert len(one_line(ValueError("x" * 1_000_000))) < 5_000
    assert (
        one_line(OSError(2, "No such file", f"a\n{EVIL}"))
        == "a\\n" + "\\x1b]0;owned\\x07\\x1b[2J\\u202e\\x9b1m: No such file"
    )


def test_memory_that_runs_out_is_no_bug() -> None:
    assert one_line(MemoryError()) == "out of memory"
    assert one_line(MemoryError("12 MiB")) == "12 MiB"


@pytest.mark.parametrize("command", [("run", "MODEL", "-f"), ("tokenize", "MODEL", "-f"), ("perplexity", "MODEL")])
def test_a_text_that_never_ends_is_refused(command: tuple[str, ...], tiny: Path) -> None:
    words = [str(tiny) if word == "MODEL" else word for word in command]
    assert error_line(minfer(*words, "/dev/zero")).endswith("has more than 256 MiB")


@pytest.mark.parametrize("option", ["--grammar", "--json-schema"])
def test_a_grammar_that_never_ends_is_refused(option: str, tiny: Path) -> None:
    told = usage_error(minfer("run", tiny, "-p", "hi", option, "/dev/zero"))
    assert f"{option} /dev/zero: it has more than 4 MiB" in told
    assert usage_error(minfer("run", tiny, "-p", "hi", option, "")) == f"Invalid value: {option} is empty"


def test_names_that_stdout_cannot_write_do_not_end_a_command(tiny: Path, tmp_path: Path) -> None:
    name = b"\xff.gguf"
    arguments = ["quantize", str(tiny), tmp_path / os.fsdecode(name), "--type", "Q8_0", "--allow-requantize"]
    done = subprocess.run([*MINFER, *arguments], capture_output=True, timeout=120, check=False)
    assert (done.returncode, [os.fsencode(p.name) for p in tmp_path.iterdir()]) == (0, [name])
    assert rb"/\udcff.gguf: " in done.stdout


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_it_leaves_no_partial_file(name: str, tiny: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        f"signal.signal(signal.{name}, signal.SIG_DFL)\n"  # whoever runs the suite may ignore it
        "from minfer_models.cli.main import run\n"
        f"os.fsync = lambda _descriptor: os.kill(os.getpid(), signal.{name})\n"
        "run()\n"
    )
    arguments = ["quantize", str(tiny), str(tmp_path / "out.gguf"), "--type", "Q8_0", "--allow-requantize"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.Signals[name], b"", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("--version",)])
def test_help_on_a_full_disk_is_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*MINFER, *arguments], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"-c: No space left on device\n")


def test_a_signal_that_the_caller_ignores_stays_ignored(tiny: Path) -> None:
    """As `nohup` asks for."""
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from minfer_models.cli.main import run\n"
        "from minfer_models.engine import Model\n"
        "opened = Model.open\n"
        "Model.open = lambda path: (os.kill(os.getpid(), signal.SIGHUP), opened(path))[1]\n"
        "run()\n"
    )
    arguments = [sys.executable, "-c", script, "run", str(tiny), "-p", "abc", "-n", "2"]
    assert subprocess.run(arguments, capture_output=True, timeout=120, check=False).returncode == 0


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_shown_controls_and_a_pipe_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for out, expected in ((_Terminal(), "a\n\tü␛]0;x␇�1m␍␡\n"), (StringIO(), "a\n\tü\x1b]0;x\x07\x9b1m\r\x7f\n")):
        monkeypatch.setattr(sys, "stdout", out)
        stdout_writer()("a\n\tü\x1b]0;x\x07\x9b")
        emit("1m\r\x7f\n", None)
        assert out.getvalue() == expected
