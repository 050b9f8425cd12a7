"""Attention's smaller pieces: the table of tiles, results in 8 bits, and one mode's code beside the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from attention_problems import Array
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from minfer_ir.formats import Q8A32, Q8A256
from minfer_ir.testing.strategies import generators
from minfer_kernels.gpu.kernels.attention.merge import merge
from minfer_kernels.gpu.kernels.attention.tiles import tiles
from minfer_kernels.gpu.kernels.windows import MODES

BUCKET = 32


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Map windows of sequences' rows, and the (first row, rows) that belong together."""
    windows: list[list[int]] = []
    groups: list[tuple[int, int]] = []
    for i in range(draw(st.integers(1, 4))):
        runs = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        start, count = draw(st.integers(0, sum(runs) - 1)), draw(st.integers(1, 7))
        groups.append((len(windows), count))
        for length in range(start, start + count):
            row, left = [], length
            for j, n in enumerate([*runs, 99]):
                row += [1000 * i + 100 * j, min(n, left)]
                left -= min(n, left)
            windows.append((row + [0] * 8)[:8])
    return windows, groups


def table_of(mode: str, positions: Array, window: Array, n_rows: int, tile: int, short: int) -> tuple[Array, list[int]]:
    table, listed, starts = (torch.full((n,), -1, dtype=torch.int32) for n in (2 * BUCKET + 1, BUCKET + 1, BUCKET + 1))
    rows_at = torch.tensor([n_rows], dtype=torch.int32)
    given = [torch.from_numpy(np.ascontiguousarray(a, np.int32)) for a in (positions, window)]
    tiles[(1,)](*given, rows_at, starts, table, listed, MODE=MODES[mode], TILE=tile, SHORT=short, BUCKET=BUCKET)
    assert (table[1 + 2 * table[0] :] == -1).all() and (listed[1 + listed[0] :] == -1).all()
    return table[1 : 1 + 2 * int(table[0])].numpy().reshape(-1, 2), listed[1 : 1 + int(listed[0])].tolist()


@settings(max_examples=40, phases=(Phase.explicit, Phase.generate))
@given(step=steps(), tile=st.sampled_from((2, 4)), short=st.integers(0, 3), mode=st.sampled_from(list(MODES)))
def test_tiles_cover_each_sequence_and_no_two(
    step: tuple[list[list[int]], list[tuple[int, int]]], tile: int, short: int, mode: str
) -> None:
    windows, groups = step
    padded = np.full((BUCKET, 8), 7, np.int32)
    padded[: len(windows)] = windows
    lengths = padded[:, 1::2].sum(axis=1)
    if mode == "causal":
        # One sequence, whose rows come with gaps.
        padded = np.zeros(1, np.int32)
    elif mode == "span":
        first = np.repeat([1000 * i for i in range(len(groups))], [n for _, n in groups])
        padded = np.full((BUCKET, 2), 7, np.int32)
        padded[: len(windows)] = np.stack([first, first + lengths[: len(windows)]], axis=1)
    table, listed = table_of(mode, lengths - 1, padded, len(windows), tile, short)
    if mode == "causal":
        cuts = [0, *(np.flatnonzero(np.diff(lengths[: len(windows)]) != 1) + 1), len(windows)]
        groups = [(a, b - a) for a, b in pairwise(cuts)]
    long = [(a, n) for a, n in groups if n > short]
    assert table.tolist() == [[a + i, min(tile, n - i)] for a, n in long for i in range(0, n, tile)]
    assert listed == [a + i for a, n in groups if n <= short for i in range(n)]


def test_a_run_that_grows_before_others_is_another_window() -> None:
    """Total and cells agree, but the positions behind the first run moved."""
    window = np.array([[10, 2, 20, 3, 0, 0, 0, 0], [10, 3, 20, 3, 0, 0, 0, 0]] * 16)
    table, _ = table_of("map", np.zeros(BUCKET), window, 2, 4, 0)
    assert table.tolist() == [[0, 1], [1, 1]]


@given(rng=generators(), block=st.sampled_from((32, 256)), head_dim=st.sampled_from((32, 64, 96, 128)))
@settings(max_examples=6, phases=(Phase.explicit, Phase.generate))
def test_results_in_8_bits_are_those_of_the_format(rng: np.random.Generator, block: int, head_dim: int) -> None:
    """Of merged heads, whose float32 values another merge of the same parts gives."""
    if block == 256 and head_dim == 96:
        head_dim = 64
    n_heads, parts, rows = 8, 2, 1
    partials = rng.standard_normal((rows, n_heads, parts, head_dim), np.float32) * 10.0 ** rng.integers(-30, 30)
    softmax = np.abs(rng.standard_normal((rows, n_heads, parts, 2), np.float32))
    both = [torch.from_numpy(a.astype(np.float32)) for a in (partials, softmax)]
    positions = torch.tensor([40], dtype=torch.int32)
    fmt = {32: Q8A32, 256: Q8A256}[block]
    floats = torch.zeros((rows, n_heads * head_dim))
    packed = torch.zeros((rows, fmt.row_bytes(n_heads * head_dim)), dtype=torch.uint8)
    for out, quantize, heads in ((floats, 0, 1), (packed, block, max(1, block // head_dim))):
        merge[(n_heads // heads, rows)](
            out, positions, torch.zeros(1, dtype=torch.int32), torch.tensor([rows], dtype=torch.int32), positions,
            *both, 0, parts, out.stride(0), N_HEADS=n_heads, HEADS=heads, HEAD_DIM=head_dim, MODE=0, SPLIT=32,
            LISTED=False, QUANTIZE=quantize, SLOTS=rows,
        )  # fmt: skip
    assert np.array_equal(packed.numpy(), fmt.encode(floats.numpy()))


CAUSAL_ONLY = """
import triton
import triton.language as tl
MAP = tl.constexpr(2)
@triton.jit
def row_length(window, positions, row, MODE: tl.constexpr):
    return tl.maximum(tl.load(positions + row) + 1, 0)
@triton.jit
def row_runs(window, row, MODE: tl.constexpr):
    return (tl.load(window),)
@triton.jit
def block_cells(runs, start, BLOCK: tl.constexpr, MODE: tl.constexpr):
    return runs[0] + (start + tl.arange(0, BLOCK))
"""
COMPARE = """
import importlib, json, sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
from minfer_kernels.gpu.gate.compiled import compile_figures
from minfer_kernels.gpu.targets import TARGETS
from minfer_kernels.gpu.kernels.attention.configurations import configurations_for
found = []
for name, module in (("attention.split.SmolLM2.f16", "split"), ("attention.flash.SmolLM2.f16", "flash")):
    (one,) = [c for c in configurations_for(TARGETS["sm_90"]) if c.name == name]
    only = replace(one, kernel=getattr(importlib.import_module("only_" + module), module))
    found.append([compile_figures(c, TARGETS["sm_90"]).histogram for c in (one, only)])
print(json.dumps(found))
"""


def test_a_causal_kernel_has_no_instruction_for_the_other_modes(tmp_path: Path) -> None:
    """Against the same kernels over functions that know no other mode."""
    import minfer_kernels.gpu.kernels.attention as package

    (tmp_path / "only_windows.py").write_text(CAUSAL_ONLY)
    for module in ("split", "merge", "flash"):
        text = (Path(package.__path__[0]) / f"{module}.py").read_text()
        text = text.replace("minfer_kernels.gpu.kernels.windows", "only_windows")
        text = text.replace("minfer_kernels.gpu.kernels.attention.merge", "only_merge")
        assert "only_windows" in text
        (tmp_path / f"only_{module}.py").write_text(text)
    environ = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPARE, str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for now, only in json.loads(done.stdout):
        assert now == only and now["HMMA" if "HMMA" in now else "HGMMA"] > 0
