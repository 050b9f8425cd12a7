"""Converting with several threads: the same bytes, and nothing half there."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from numpy.typing import NDArray

from minfer_models.convert import convert
from minfer_models.convert.safetensors import SafeTensor

CHILD = """
import os, signal, sys
import minfer_models.convert.weights as weights
from minfer_models.convert import convert
weights.PIECE_ELEMENTS = 2000
def hear(name, nbytes):
    if name == "blk.1.ffn_down.weight":
        os.kill(os.getpid(), signal.SIGINT)
convert(sys.argv[1], sys.argv[2], "f16", threads=3, hear=hear)
"""


@pytest.mark.parametrize("type_name", ["auto", "q8_0"])
def test_the_bytes_do_not_depend_on_the_threads(
    llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_name: str
) -> None:
    """One piece to a tensor and one thread; then many pieces, on as many as four."""
    whole = convert(llama_folder, tmp_path / "whole.gguf", type_name, threads=1).read_bytes()
    monkeypatch.setattr("minfer_models.convert.weights.PIECE_ELEMENTS", 1500)
    rows = SafeTensor.rows
    for threads in (1, 2, 4):
        under_way, first = threading.Barrier(threads), iter(range(threads))

        def meeting(
            tensor: SafeTensor,
            start: int,
            stop: int,
            row_bytes: int,
            under_way: threading.Barrier = under_way,
            first: Iterator[int] = first,
        ) -> NDArray[np.uint8]:
            if threading.current_thread() is not threading.main_thread() and next(first, None) is not None:
                under_way.wait(60)  # broken unless so many pieces are made at once
            return rows(tensor, start, stop, row_bytes)

        monkeypatch.setattr(SafeTensor, "rows", meeting)
        assert convert(llama_folder, tmp_path / f"{threads}.gguf", type_name, threads=threads).read_bytes() == whole


def test_weights_are_those_of_the_folder(llama_folder: Path, llama_model: Any, tmp_path: Path) -> None:
    made = convert(llama_folder, tmp_path / "m.gguf", threads=2)
    found = {tensor.name: tensor.data for tensor in GGUFReader(made).tensors}
    wanted = llama_model.state_dict()
    assert np.array_equal(found["blk.1.ffn_down.weight"], wanted["model.layers.1.mlp.down_proj.weight"].numpy())
    q = wanted["model.layers.1.self_attn.q_proj.weight"].numpy()
    assert np.array_equal(found["blk.1.attn_q.weight"], q.reshape(8, 2, 4, 64).swapaxes(1, 2).reshape(64, 64))


def test_ctrl_c_in_the_middle_leaves_no_file(llama_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(llama_folder), str(tmp_path / "out" / "m.gguf")],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGINT, done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_an_error_in_a_thread_leaves_no_file(
    llama_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minfer_models.convert.weights.PIECE_ELEMENTS", 1500)
    rows = SafeTensor.rows

    def failing(tensor: SafeTensor, start: int, stop: int, row_bytes: int) -> NDArray[np.uint8]:
        if tensor.name == "model.layers.1.mlp.down_proj.weight" and start:
            raise OSError(5, "Input/output error", str(tensor.path))
        return rows(tensor, start, stop, row_bytes)

    monkeypatch.setattr(SafeTensor, "rows", failing)
    (tmp_path / "out").mkdir()
    with pytest.raises(OSError, match="Input/output error"):
        convert(llama_folder, tmp_path / "out" / "m.gguf", threads=3)
    assert list((tmp_path / "out").iterdir()) == []
