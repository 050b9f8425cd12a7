"""Packed cells staged for their scores: what lies along a cell comes to lie across sixteen of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Isa, Machine
from minfer_kernels.cpu.kernels.parts.attention.registers.loops import (
    V4I,
    V16I,
    loop,
    plus,
    rows_from,
    scaled,
    whole,
)
from minfer_kernels.cpu.simd.core import (
    I32,
    I64,
    const,
    i64,
    lanes,
    load,
    op,
    store,
    void,
)


@op(void, i64, i64, i64, i64, by_machine=True)
def stage_quads(b: ir.IRBuilder, machine: Machine, cells: Any, table: Any, out: Any, chunks: Any) -> None:
    """`chunks` of 16 bytes of sixteen cells: vector j of a chunk gets bytes 4j to 4j + 3 of every cell in its lane.

    Biased by 128 where the dot product wants one side unsigned.
    """
    bias = const(V16I, 0x80808080) if Isa.AVX512_VNNI in machine.isa.includes else None
    rows = [b.add(cells, load(b, plus(b, table, 8 * c), I64, 8)) for c in range(16)]

    def chunk(i: Any, _: Sequence[Any]) -> list[Any]:
        fours = [load(b, scaled(b, row, i, 16), V4I, 1) for row in rows]
        _store_columns(b, fours, scaled(b, out, i, 256), bias)
        return []

    loop(b, whole(0), chunks, [], chunk)


@op(void, i64, i64, i64)
def stage_lanes(b: ir.IRBuilder, rows: Any, stride: Any, out: Any) -> None:
    """Four 32-bit numbers of each of sixteen rows: vector j gets number j of every row."""
    _store_columns(b, [load(b, row, V4I, 4) for row in rows_from(b, rows, stride, 16)], out, None)


def _store_columns(b: ir.IRBuilder, fours: Sequence[Any], out: Any, bias: Any) -> None:
    for j, column in enumerate(_transposed(b, fours)):
        value = column if bias is None else b.xor(column, bias)
        store(b, plus(b, out, 64 * j), value, 64)


def _transposed(b: ir.IRBuilder, fours: Sequence[Any]) -> list[Any]:
    """Sixteen vectors of four to four of sixteen: lane c of vector j is lane j of the c-th."""
    eight, sixteen = ir.VectorType(I32, 8), V16I

    def joined(i: int) -> Any:
        low, high = (b.shuffle_vector(fours[i + h], fours[i + h + 4], lanes(eight, range(8))) for h in (0, 8))
        return b.shuffle_vector(low, high, lanes(sixteen, range(16)))

    def within_quarters(x: Any, y: Any, order: Sequence[int]) -> Any:
        picked = [(16 if o >= 4 else 0) + o % 4 + quarter for quarter in range(0, 16, 4) for o in order]
        return b.shuffle_vector(x, y, lanes(sixteen, picked))

    p, q, r, s = (joined(i) for i in range(4))
    orders = (0, 4, 1, 5), (2, 6, 3, 7)
    halves = [(within_quarters(p, q, order), within_quarters(r, s, order)) for order in orders]
    return [within_quarters(x, y, order) for x, y in halves for order in ((0, 1, 4, 5), (2, 3, 6, 7))]
