"""Scores of float cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.kernels.parts.attention.registers.floats import LOADERS
from minfer_kernels.cpu.kernels.parts.attention.registers.loops import (
    V16F,
    fma16,
    loop,
    plus,
    rows_from,
    scaled,
    whole,
    zeros16,
)
from minfer_kernels.cpu.simd import prefetch
from minfer_kernels.cpu.simd.core import (
    I32,
    I64,
    Op,
    f32x16,
    i64,
    lanes,
    load,
    op,
    shuffle,
    store,
    void,
)


def score_tile(cell_type: str, queries: int) -> Op:
    """A primitive for 16 scores: lane r * n + c is query r times the c-th of n cells, by sixteen lanes and their tree.

    Operands: the queries' elements and their stride, the cells' base, their table, how many bytes ahead to prefetch,
    and the vectors of a head.
    """
    loader, element = LOADERS[cell_type]
    cells = 16 // queries

    @op(f32x16, *[i64] * 6, by_machine=True, name=f"score_tile_{cell_type}_{queries}")
    def emit(
        b: ir.IRBuilder, machine: Machine, q: Any, q_stride: Any, keys: Any, table: Any, ahead: Any, steps: Any
    ) -> Any:  # fmt: skip
        rows = rows_from(b, q, q_stride, queries)
        cell_rows = [b.add(keys, load(b, plus(b, table, 8 * c), I64, 8)) for c in range(cells)]

        def step(i: Any, sums: Sequence[Any]) -> list[Any]:
            xs = [load(b, scaled(b, row, i, 64), V16F, 4) for row in rows]
            places = [scaled(b, cell, i, 16 * element) for cell in cell_rows]
            ks = [loader.emit(machine, b, (place,)) for place in places]
            for place in places:
                prefetch.emit(machine, b, (b.add(place, ahead),))
            return [fma16(b, xs[j // cells], ks[j % cells], total) for j, total in enumerate(sums)]

        return _sums_of_16(b, loop(b, whole(0), steps, [zeros16()] * 16, step))

    return emit


def _sums_of_16(b: ir.IRBuilder, vectors: Sequence[Any]) -> Any:
    """Lane i is the sum of vector i by the tree of `sum_lanes`: halves, then quarters, pairs and neighbours."""
    level = list(vectors)
    for distance in (8, 4, 2, 1):
        half = len(level) // 2
        level = [_folded(b, level[i], level[i + half], distance) for i in range(half)]
    return level[0]


def _folded(b: ir.IRBuilder, x: Any, y: Any, distance: int) -> Any:
    """x + (its lanes `distance` on) in the lanes whose number lacks the bit `distance`, the same of y in the others."""
    order = ir.VectorType(I32, 16)
    own = [lane + 16 if lane & distance else lane for lane in range(16)]
    across = [lane ^ distance for lane in own]
    return b.fadd(b.shuffle_vector(x, y, lanes(order, own)), b.shuffle_vector(x, y, lanes(order, across)))


def score_store(queries: int) -> Op:
    """A primitive that stores the 16 lanes of a score tile: equal runs of them, `stride` bytes apart."""
    cells = 16 // queries

    @op(void, i64, i64, f32x16, name=f"score_store_{queries}")
    def emit(b: ir.IRBuilder, p: Any, stride: Any, scores: Any) -> None:
        for r, row in enumerate(rows_from(b, p, stride, queries)):
            store(b, row, shuffle(b, scores, range(r * cells, (r + 1) * cells)), 4)

    return emit
