"""Weights times values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.kernels.parts.attention.registers.floats import LOADERS
from minfer_kernels.cpu.kernels.parts.attention.registers.loops import (
    V16F,
    V16I,
    VECTORS,
    fma16,
    loop,
    plus,
    rows_from,
    scaled,
)
from minfer_kernels.cpu.simd import prefetch
from minfer_kernels.cpu.simd.core import (
    F32,
    I8,
    I64,
    Op,
    f32,
    f32x16,
    i64,
    load,
    op,
    splat,
    store,
    void,
)


def value_tile(cell_type: str, queries: int) -> Op:
    """A primitive that adds weight times value over cells [first, end), ascending, to columns of several queries.

    Every element of `out` (queries `out_stride` bytes apart, 64 elements each) goes on as a chain of fused
    multiply-adds. Operands: the weights and their stride, the cells' base and table, how many bytes ahead to prefetch,
    the packed cells' scales and bytes of them per cell, first, end, out and its stride.
    """
    column_bytes = 16 * VECTORS * (1 if cell_type == "q8_0" else LOADERS[cell_type][1])

    @op(void, *[i64] * 11, by_machine=True, name=f"value_tile_{cell_type}_{queries}")
    def emit(
        b: ir.IRBuilder, machine: Machine, weights: Any, w_stride: Any, values: Any, table: Any, ahead: Any,
        scales: Any, scale_stride: Any, first: Any, end: Any, out: Any, out_stride: Any,
    ) -> None:  # fmt: skip
        columns = _column_loader(b, machine, cell_type)
        outs = [plus(b, row, 64 * j) for row in rows_from(b, out, out_stride, queries) for j in range(VECTORS)]
        rows = rows_from(b, weights, w_stride, queries)

        def step(c: Any, sums: Sequence[Any]) -> list[Any]:
            cell = b.add(values, load(b, scaled(b, table, c, 8), I64, 8))
            vectors = columns(cell, b.add(scales, b.mul(scale_stride, c)))
            for line in range(0, column_bytes, 64):
                prefetch.emit(machine, b, (plus(b, b.add(cell, ahead), line),))
            ws = [splat(b, load(b, scaled(b, row, c, 4), F32, 4), V16F) for row in rows]
            return [fma16(b, ws[j // VECTORS], vectors[j % VECTORS], total) for j, total in enumerate(sums)]

        sums = loop(b, first, end, [load(b, p, V16F, 4) for p in outs], step)
        for p, total in zip(outs, sums, strict=True):
            store(b, p, total, 4)

    return emit


def _column_loader(b: ir.IRBuilder, machine: Machine, cell_type: str) -> Callable[[Any, Any], list[Any]]:
    """(cell, its scales) to four vectors of float32."""
    if cell_type == "q8_0":

        def packed(cell: Any, scales: Any) -> list[Any]:
            ds = [splat(b, load(b, plus(b, scales, 4 * i), F32, 4), V16F) for i in range(VECTORS // 2)]
            quants = [load(b, plus(b, cell, 16 * j), ir.VectorType(I8, 16), 1) for j in range(VECTORS)]
            return [b.fmul(b.sitofp(b.sext(q, V16I), V16F), ds[j // 2]) for j, q in enumerate(quants)]

        return packed
    loader, element = LOADERS[cell_type]
    return lambda cell, _: [loader.emit(machine, b, (plus(b, cell, 16 * element * j),)) for j in range(VECTORS)]


@op(f32x16, i64, f32)
def load_quants16(b: ir.IRBuilder, p: Any, d: Any) -> Any:
    """Sixteen int8 times d."""
    quants = b.sext(load(b, p, ir.VectorType(I8, 16), 1), V16I)
    return b.fmul(b.sitofp(quants, V16F), splat(b, d, V16F))
