"""Attention: against float64, and the same bits for every window mode, cell placement, tiling and thread count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lane_oracle
import numpy as np
import pytest
from cpu_harness import BEST, VARIANTS, Array, Runner, gaps_untouched, guarded, strided_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats import Q8_0_CELL, Q8A32
from minfer_ir.formats.cells import cell_values
from minfer_ir.testing.tolerances import ATTENTION
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.kernels.parts.attention.scratch import (
    COUNTER_BYTES,
    attention_scratch_bytes,
    most_blocks,
    shared_bytes,
)

Cpu = Mapping[Isa, Runner]


@dataclass
class Problem:
    """Rows of queries over logical K and V rows as stored; row t attends the first `lengths[t]`."""

    q: Array
    k: Array
    v: Array
    lengths: list[int]
    n_kv_heads: int

    @property
    def scale(self) -> float:
        return float(np.float32(self.q.shape[2] ** -0.5))


def draw(seed: int, lengths: list[int], heads: int, kv_heads: int, dim: int, cell_type: str) -> Problem:
    rng = np.random.default_rng(seed)
    n = max([*lengths, 1])
    q = rng.standard_normal((len(lengths), heads, dim), dtype=np.float32)
    k = 2 * rng.standard_normal((n, kv_heads * dim), dtype=np.float32)
    v = rng.standard_normal((n, kv_heads * dim), dtype=np.float32)
    return Problem(q, stored(k, cell_type), stored(v, cell_type), lengths, kv_heads)


def stored(values: Array, cell_type: str) -> Array:
    if cell_type == "q8_0":
        return Q8_0_CELL.encode(values)
    return values.astype({"f32": np.float32, "f16": np.float16}[cell_type])


CELL_TYPES = {1: "q8_0", 2: "f16", 4: "f32"}


def exact(p: Problem) -> Array:
    heads, dim = p.q.shape[1:]
    out = np.zeros(p.q.shape)
    q = Q8A32.decode(Q8A32.encode(p.q)) if p.k.dtype == np.uint8 else p.q
    k, v = (cell_values(a).astype(np.float64) for a in (p.k, p.v))
    for t, n in enumerate(p.lengths):
        for h in range(heads if n else 0):
            columns = slice(h * p.n_kv_heads // heads * dim, (h * p.n_kv_heads // heads + 1) * dim)
            scores = k[:n, columns] @ q[t, h].astype(np.float64) * p.scale
            weights = np.exp(scores - scores.max())
            out[t, h] = weights @ v[:n, columns] / weights.sum()
    return out


@dataclass
class Placed:
    """A problem in cells, with the window input of one mode."""

    mode: str
    k: Array
    v: Array
    positions: list[int]
    window: Array


def scattered(values: Array, cells: Array, total: int) -> Array:
    """The rows in their cells; the other cells hold NaN, which must never reach a result."""
    nothing = 255 if values.dtype == np.uint8 else np.nan
    region = np.full((total, values.shape[1]), nothing, values.dtype)
    region[cells] = values
    return guarded(region)


def place(p: Problem, mode: str, shift: int) -> Placed:
    n = len(p.k)
    cells = np.arange(n) + shift
    if mode == "causal":
        window: Any = np.array([shift], np.int32)
    elif mode == "span":
        window = np.array([[shift, shift + n_t] for n_t in p.lengths], np.int32)
    else:
        cuts = sorted({0, n // 7, n // 3, n // 2, n})[-5:]
        runs = list(pairwise(cuts))
        starts = np.cumsum([0, *(5 + hi - lo for lo, hi in reversed(runs))])[:-1][::-1] + shift
        cells = np.concatenate([np.arange(s, s + hi - lo) for s, (lo, hi) in zip(starts, runs, strict=True)])
        window = np.zeros((len(p.lengths), 4, 2), np.int32)
        for t, n_t in enumerate(p.lengths):
            for i, (s, (lo, hi)) in enumerate(zip(starts, runs, strict=True)):
                window[t, i] = s, np.clip(n_t - lo, 0, hi - lo)
    total = int(cells.max()) + 1
    placed_k, placed_v = scattered(p.k, cells, total), scattered(p.v, cells, total)
    return Placed(mode, placed_k, placed_v, [n_t - 1 for n_t in p.lengths], guarded(window))


def attend(
    runner: Runner,
    p: Problem,
    placed: Placed,
    n_threads: int = 1,
    gap: int = 0,
    scratch: Array | None = None,
    bucket: int | None = None,
) -> Array:
    heads, dim = p.q.shape[1:]
    q, out = strided_rows(p.q, gap), strided_rows(np.zeros_like(p.q), gap)
    scratch_stride = attention_scratch_bytes(heads, p.n_kv_heads, dim) if scratch is None else scratch.shape[1]
    cell_type = CELL_TYPES[p.k.itemsize]
    rows, cells = bucket or len(q), len(placed.k)
    shared = guarded(np.full(shared_bytes(rows, cells, heads, p.n_kv_heads, dim), 255, np.uint8))
    shared[:COUNTER_BYTES] = 0
    runner.run(
        f"attention.attend[{placed.mode},{cell_type}]",
        n_threads,
        q=q,
        k=placed.k,
        v=placed.v,
        out=out,
        rows_at=guarded(np.array([len(q)], np.int32)),
        positions=guarded(np.array(placed.positions, np.int32)),
        window=placed.window,
        scratch=guarded(np.full(n_threads * scratch_stride, 255, np.uint8)) if scratch is None else scratch,
        shared=shared,
        most_blocks=most_blocks(rows, cells, p.n_kv_heads),
        q_stride=q.strides[0],
        q_head_stride=4 * dim,
        out_stride=out.strides[0],
        out_head_stride=4 * dim,
        cell_bytes=placed.k.strides[0],
        n_heads=heads,
        n_kv_heads=p.n_kv_heads,
        head_dim=dim,
        scale=p.scale,
        scratch_stride=scratch_stride,
    )
    assert gaps_untouched(out)
    assert not shared[:COUNTER_BYTES].any()
    return out.copy()


GEOMETRIES = {
    **{name: [(1, 1, 1), (3, 1, 20), (9, 3, 64), (4, 4, 8), (7, 1, 72), (2, 2, 128)] for name in ("f32", "f16")},
    "q8_0": [(1, 1, 32), (3, 1, 96), (9, 3, 64), (4, 2, 128), (7, 1, 160), (2, 2, 256)],
}
SHAPES = [(cell_type, geometry) for cell_type, geometries in GEOMETRIES.items() for geometry in geometries]
LENGTHS = [[1], [0], [128], [129], [1, 2, 3], [0, 127, 128, 260, 0, 5], list(range(250, 290)), [600] * 3]
by_shape = pytest.mark.parametrize(("cell_type", "geometry"), SHAPES, ids=str)


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda n: f"{len(n)}rows{n[-1]}")
@by_shape
def test_attention_is_exact_within_tolerance_in_every_mode(
    cpu: Cpu, geometry: tuple[int, int, int], lengths: list[int], cell_type: str
) -> None:
    p = draw(1, lengths, *geometry, cell_type)
    expected = exact(p)
    results = {mode: attend(cpu[BEST], p, place(p, mode, 3), gap=5) for mode in ("causal", "span", "map")}
    np.testing.assert_allclose(
        results["causal"], expected, rtol=0, atol=ATTENTION.relative(1) * float(np.abs(cell_values(p.v)).max())
    )
    assert (results["causal"][np.array(lengths) == 0] == 0).all()
    for mode, result in results.items():
        assert result.tobytes() == results["causal"].tobytes(), mode


@by_shape
def test_attention_follows_its_documented_order_bit_by_bit(
    cpu: Cpu, geometry: tuple[int, int, int], cell_type: str
) -> None:
    heads, kv_heads, dim = geometry
    p = draw(6, [1, 7, 128, 261], *geometry, cell_type)
    result = attend(cpu[BEST], p, place(p, "causal", 0))
    k, v = logical(p.k), logical(p.v)
    for t, n in enumerate(p.lengths):
        for h in range(heads):
            columns = slice(h * kv_heads // heads * dim, (h * kv_heads // heads + 1) * dim)
            keys, values = part(k, n, columns), part(v, n, columns)
            expected = lane_oracle.attention(p.q[t, h], keys, values, p.scale)
            assert result[t, h].tobytes() == expected.tobytes(), (t, h)


def logical(stored: Array) -> Any:
    """Cells as the oracle takes them: float rows, or planes."""
    return Q8_0_CELL.planes(stored) if stored.dtype == np.uint8 else stored


def part(cells: Any, n: int, columns: slice[int, int, None]) -> Any:
    if not isinstance(cells, tuple):
        return cells[:n, columns]
    quants, scales = cells
    return quants[:n, columns], scales[:n, columns.start // 32 : columns.stop // 32]


@pytest.mark.parametrize("cell_type", GEOMETRIES)
@pytest.mark.parametrize("mode", ["causal", "span", "map"])
def test_attention_bits_do_not_depend_on_threads_or_instruction_set(cpu: Cpu, mode: str, cell_type: str) -> None:
    p = draw(2, [5, 140, 0, 261, 128, 400, 399], 6, 3, 32, cell_type)
    placed = place(p, mode, 0)
    reference, *others = [attend(cpu[isa], p, placed, n).tobytes() for isa, n in VARIANTS]
    assert [o == reference for o in others] == [True] * len(others)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=40),
    shape=st.sampled_from(SHAPES),
    mode=st.sampled_from(["causal", "span", "map"]),
    seed=st.integers(0, 9),
)
def test_rows_alone_equal_rows_together(
    cpu: Cpu, lengths: list[int], shape: tuple[str, tuple[int, int, int]], mode: str, seed: int
) -> None:
    cell_type, geometry = shape
    p = draw(seed, lengths, *geometry, cell_type)
    together = attend(cpu[BEST], p, place(p, mode, 1), n_threads=2)
    row = seed % len(lengths)
    alone = Problem(p.q[row : row + 1], p.k, p.v, lengths[row : row + 1], p.n_kv_heads)
    assert attend(cpu[BEST], alone, place(alone, mode, 11)).tobytes() == together[row : row + 1].tobytes()


@pytest.mark.parametrize("mode", ["span", "map"])
def test_rows_of_different_sequences_share_a_forward(cpu: Cpu, mode: str) -> None:
    first, second = draw(3, [10, 11, 12], 4, 2, 16, "f16"), draw(4, [70, 71], 4, 2, 16, "f16")
    both = Problem(np.concatenate([first.q, second.q]), first.k, first.v, [*first.lengths, *second.lengths], 2)
    k, v = (np.full((200, 32), np.nan, np.float16) for _ in range(2))
    for region, one, other in ((k, first.k, second.k), (v, first.v, second.v)):
        region[100:112], region[5:76] = one, other
    starts = [100] * 3 + [5] * 2
    spans = np.array([[s, s + n] for s, n in zip(starts, both.lengths, strict=True)], np.int32)
    runs = np.zeros((5, 4, 2), np.int32)
    # The second run starts at a place of its own in each row, the third is empty.
    for row, (s, n) in enumerate(zip(starts, both.lengths, strict=True)):
        runs[row] = (s, 2 + row), (7, 0), (s + 2 + row, n - 2 - row), (0, 0)
    placed = Placed(mode, guarded(k), guarded(v), [0] * 5, guarded(spans if mode == "span" else runs))
    together = attend(cpu[BEST], both, placed)
    for part, problem in ((together[:3], first), (together[3:], second)):
        assert part.tobytes() == attend(cpu[BEST], problem, place(problem, "span", 0)).tobytes()


RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=4, max_size=4)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(RUNS, min_size=1, max_size=6), seed=st.integers(0, 99))
def test_any_runs_equal_the_same_cells_in_order(cpu: Cpu, rows: list[list[tuple[int, int]]], seed: int) -> None:
    """Runs drawn to agree, nearly agree or overlap; each row alone over its cells laid out in order is the oracle."""
    rng = np.random.default_rng(seed)
    k, v = (rng.standard_normal((80, 16)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((len(rows), 2, 16), dtype=np.float32)
    window = np.array([[(10 * cell, n) for cell, n in runs] for runs in rows], np.int32)
    lengths = [sum(n for _, n in runs) for runs in rows]
    together = attend(
        cpu[BEST], Problem(q, k, v, lengths, 1), Placed("map", guarded(k), guarded(v), [0] * len(rows), window)
    )
    for row, runs in enumerate(rows):
        cells = np.concatenate([np.arange(10 * cell, 10 * cell + n) for cell, n in runs])
        kept = cells if len(cells) else [0]
        alone = Problem(q[row : row + 1], k[kept], v[kept], [lengths[row]], 1)
        assert attend(cpu[BEST], alone, place(alone, "span", 0)).tobytes() == together[row].tobytes()


@pytest.mark.parametrize("cell_type", GEOMETRIES)
@pytest.mark.parametrize("lengths", [[300], [300] * 64], ids=len)
def test_every_thread_stays_in_its_own_scratch(cpu: Cpu, lengths: list[int], cell_type: str) -> None:
    p = draw(5, lengths, 6, 2, 96, cell_type)
    need = attention_scratch_bytes(6, 2, 96)
    scratch = guarded(np.full((3, need + 64), 255, np.uint8))
    attend(cpu[BEST], p, place(p, "causal", 0), 3, scratch=scratch)
    assert (scratch[:, need:] == 255).all() and (scratch[:, :need] != 255).any()
