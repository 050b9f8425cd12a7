"""Scores of packed cells: integer dot products of quads, four int8 at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from minfer_kernels.cpu.compiler.features import Isa, Machine
from minfer_kernels.cpu.kernels.parts.attention.registers.loops import (
    V16F,
    V16I,
    V64B,
    as_tuple,
    fma16,
    loop,
    plus,
    rows_from,
    scaled,
    whole,
    zeros16,
)
from minfer_kernels.cpu.simd.core import (
    F32,
    I1,
    I8,
    I16,
    I32,
    I64,
    Op,
    call,
    const,
    f32,
    f32x16,
    i64,
    lanes,
    load,
    op,
    shuffle,
    splat,
    store,
    void,
)


def tile_groups(queries: int) -> int:
    """Groups of sixteen cells that a tile of integer scores takes."""
    return 2 if queries == 4 else 4


def quad_tile(queries: int) -> Op:
    """A primitive for the scores of packed cells: queries by `tile_groups` groups of sixteen cells.

    Score: a chain over blocks of 32, ascending, of fma(dq * dk, float of the integer dot, score). Operands: the queries
    and their stride (quants, then at `scales_at` float32 scales, then int32 starts), the staged quants and bytes per
    group, the staged scales and bytes per group, and the blocks of a head.
    """
    groups = tile_groups(queries)
    result = types.UniTuple(f32x16, queries * groups)

    @op(result, *[i64] * 8, by_machine=True, name=f"quad_tile_{queries}")
    def emit(
        b: ir.IRBuilder, machine: Machine, q: Any, q_stride: Any, scales_at: Any, k: Any, k_group: Any, dk: Any,
        dk_group: Any, blocks: Any,
    ) -> Any:  # fmt: skip
        rows = rows_from(b, q, q_stride, queries)
        ks, ds = rows_from(b, k, k_group, groups), rows_from(b, dk, dk_group, groups)

        def step(block: Any, scores: Sequence[Any]) -> list[Any]:
            scales = [scaled(b, b.add(row, scales_at), block, 4) for row in rows]
            starts = [splat(b, load(b, b.add(s, b.mul(blocks, whole(4))), I32, 4), V16I) for s in scales]
            sums = [starts[j // groups] for j in range(queries * groups)]
            for quad in range(8):
                keys = [load(b, plus(b, scaled(b, row, block, 512), 64 * quad), V64B, 64) for row in ks]
                fours = [load(b, plus(b, scaled(b, row, block, 32), 4 * quad), I32, 4) for row in rows]
                xs = [b.bitcast(splat(b, four, V16I), V64B) for four in fours]
                sums = [_quad_dot(b, machine, s, keys[j % groups], xs[j // groups]) for j, s in enumerate(sums)]
            dq = [splat(b, load(b, s, F32, 4), V16F) for s in scales]
            d = [load(b, scaled(b, row, block, 64), V16F, 64) for row in ds]
            return [
                fma16(b, b.fmul(dq[j // groups], d[j % groups]), b.sitofp(sums[j], V16F), score)
                for j, score in enumerate(scores)
            ]

        return as_tuple(b, loop(b, whole(0), blocks, [zeros16()] * (queries * groups), step))

    return emit


def quad_store(queries: int) -> Op:
    """A primitive that stores a tile of `quad_tile`, times a factor: rows of scores `stride` bytes apart."""
    groups = tile_groups(queries)

    @op(void, i64, i64, types.UniTuple(f32x16, queries * groups), f32, name=f"quad_store_{queries}")
    def emit(b: ir.IRBuilder, p: Any, stride: Any, scores: Any, factor: Any) -> None:
        times = splat(b, factor, V16F)
        for r, row in enumerate(rows_from(b, p, stride, queries)):
            for g in range(groups):
                value = b.fmul(b.extract_value(scores, r * groups + g), times)
                store(b, plus(b, row, 64 * g), value, 4)

    return emit


def _quad_dot(b: ir.IRBuilder, machine: Machine, total: Any, keys: Any, x: Any) -> Any:
    """total + the dot products of four int8 each; every way to compute it is exact."""
    if Isa.AVX512_VNNI in machine.isa.includes:
        return call(b, "llvm.x86.avx512.vpdpbusd.512", V16I, total, b.bitcast(keys, V64B), x)
    if Isa.AVX2 in machine.isa.includes:
        parts = [[shuffle(b, v, range(h, h + 32)) for v in (keys, x)] for h in (0, 32)]
        low, high = (_quad_dot_avx2(b, own[0], own[1]) for own in parts)
        return b.add(total, b.shuffle_vector(low, high, lanes(V16I, range(16))))
    wide = ir.VectorType(I16, 64)
    products = b.mul(b.sext(keys, wide), b.sext(x, wide))
    pairs = b.add(shuffle(b, products, range(0, 64, 2)), shuffle(b, products, range(1, 64, 2)))
    pairs = b.sext(pairs, ir.VectorType(I32, 32))
    return b.add(total, b.add(shuffle(b, pairs, range(0, 32, 2)), shuffle(b, pairs, range(1, 32, 2))))


def _quad_dot_avx2(b: ir.IRBuilder, keys: Any, x: Any) -> Any:
    """Sums of two products fit 16 bits because no quant is -128."""
    bytes32, words16 = ir.VectorType(I8, 32), ir.VectorType(I16, 16)
    magnitude = call(b, "llvm.abs.v32i8", bytes32, keys, ir.Constant(I1, 0))
    signed = call(b, "llvm.x86.avx2.psign.b", bytes32, x, keys)
    pairs = call(b, "llvm.x86.avx2.pmadd.ub.sw", words16, magnitude, signed)
    return call(b, "llvm.x86.avx2.pmadd.wd", ir.VectorType(I32, 8), pairs, const(words16, 1))


@op(i64, i64, by_machine=True)
def quad_start(b: ir.IRBuilder, machine: Machine, q: Any) -> Any:
    """What the integer dot of a query's 32 quants starts from: it takes back the bias of the staged cells."""
    if Isa.AVX512_VNNI not in machine.isa.includes:
        return whole(0)
    quants = b.sext(load(b, q, ir.VectorType(I8, 32), 1), ir.VectorType(I32, 32))
    total = call(b, "llvm.vector.reduce.add.v32i32", I32, quants)
    return b.sext(b.mul(total, ir.Constant(I32, -128)), I64)
