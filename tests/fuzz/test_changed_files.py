"""A model's file may be cut, replaced or deleted once the model is loaded; what dies of it while loading says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minfer_models.synthetic import SyntheticModel, write_model

CHILD = Path(__file__).with_name("truncated_child.py")


@pytest.mark.parametrize(
    ("device", "how"), [("cpu", "empty"), ("torch:cpu", "half"), ("numpy", "empty"), ("cpu", "replace")]
)
def test_a_loaded_model_needs_its_file_no_more(device: str, how: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", SyntheticModel(n_blocks=1, width=64, ffn_width=64, n_ctx_train=128))
    command = [sys.executable, str(CHILD), str(path), device, how]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=CHILD.parents[2], env=_with_root()
    )
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr[-2000:]


def test_a_vanished_page_is_no_silent_death(tmp_path: Path) -> None:
    """The command's start, then what loading a file does that is being truncated: touching a page that is gone."""
    code = (
        "import mmap, os, sys\n"
        "from minfer_models.cli.entry import start\n"
        "def touch():\n"
        "    with open(sys.argv[1], 'rb') as file:\n"
        "        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "    os.truncate(sys.argv[1], 0)\n"
        "    return mapped[1 << 16]\n"
        "start(lambda: touch)\n"
    )
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(1 << 17))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=_with_root(),
    )
    assert done.returncode == -signal.SIGBUS
    assert "Bus error" in done.stderr
    assert "in touch" in done.stderr


def _with_root() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHILD.parents[2])}
