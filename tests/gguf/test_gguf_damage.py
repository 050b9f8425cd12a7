"""Damage: a file with any header byte changed, or cut anywhere, opens or raises GGUFError, never anything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from minfer_models.gguf import array_source, write_gguf

HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
"""A script's own folder comes first on its path: without this it would import what is installed, not this tree."""


def damage(tmp_path: Path, stride: int) -> dict[str, int]:
    metadata = {
        "general.architecture": "llama",
        "general.alignment": 32,
        "llama.block_count": 2,
        "x.f": 0.5,
        "x.b": True,
        "x.s": ["one", "two", ""],
        "x.n": [1, 2, 3],
        "x.flags": [True, False],
    }
    quants = np.zeros((4, 36), np.uint8)
    tensors = [
        array_source("token_embd.weight", quants, GGMLQuantizationType.Q4_0),
        array_source("norm", np.ones(5, np.float32)),
        array_source("cube", np.ones((2, 3, 4), np.float16)),
    ]
    (path,) = write_gguf(tmp_path / "good.gguf", metadata, tensors)
    child = [sys.executable, str(Path(__file__).with_name("mutate_child.py")), str(path), str(tmp_path), str(stride)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=300, check=False, env=HERE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    outcomes = damage(tmp_path, 5)
    assert outcomes["refused"] > 500
    assert outcomes["opened"] > 100
    assert outcomes["lenient listed"] > 20


@pytest.mark.full
def test_damage_to_every_byte(tmp_path: Path) -> None:
    assert damage(tmp_path, 1)["refused"] > 2500
