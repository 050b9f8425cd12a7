"""Dot products of quants, four bytes of a row at a time, and of pairs of 16-bit numbers.

A *run* is eight vectors of bytes, one per quad: byte 4r + j of vector g is element 4g + j of row r. `simd.runs`
loads it; the primitives here multiply it with 32 activation bytes and add the products to a vector of int32, one
lane per row. Every step is exact, so the instruction sets agree whatever instructions they use:

- with vpdpbusd, unsigned bytes times signed ones are added to the 32-bit sums at once. Signed weights are biased by
  128 when they are loaded, and the sum starts at -128 times the sum of the activation's quants;
- elsewhere products are summed in 16 bits for as many quads as cannot overflow with |x| <= 127, then widened and
  multiplied by a small scale in the same instruction (a constant 1 where there is none).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types

from minfer_kernels.cpu.simd.core import (
    I1,
    I16,
    I32,
    I64,
    Isa,
    Op,
    Width,
    call,
    const,
    i64,
    load,
    op,
    shuffle,
    splat,
)

BIAS = 128
"""What vpdpbusd's unsigned operand adds to signed weights."""


class Dots(NamedTuple):
    """The multiplying primitives of one width."""

    pair_dot: Op
    """(sums, x i16, y i16) to sums + x[2r] * y[2r] + x[2r + 1] * y[2r + 1]."""
    splat_pair: Op
    """(address) to the two int16 there in every pair of lanes."""
    start: Callable[[str, int, bool], Op]
    """(name, centre, signed) to a primitive (sum of the activation's quants) to what the sums of `dot` start at."""
    dot: Callable[[str, int, bool], Op]
    """(name, quads per 16-bit sum, signed) to a primitive (sums, run, address of 32 int8) to the sums with the run's
    products: unsigned quants up to q need 2 * q * 127 * quads_per_sum < 2 ** 15."""
    scaled_dot: Callable[[str, int, int, int], Op]
    """(name, quads per 16-bit sum, scales of a run 1 or 2, largest sum of 16 products) to a primitive
    (sums, unsigned run, address, scales) that adds the products of quads 0-3 times the scale in lane 2r and those of
    quads 4-7 times the one in lane 2r + 1 (equal where a run has one)."""


def run_type(width: Width) -> types.UniTuple:
    """The Numba type of a run."""
    return types.UniTuple(width.i8, 8)


def dots(width: Width) -> Dots:
    """The primitives of `width`."""
    ints, shorts = width.i32.llvm, width.i16.llvm

    @op(width.i32, width.i32, width.i16, width.i16, name=f"pair_dot{width.n}")
    def pair_dot(b: ir.IRBuilder, sums: Any, x: Any, y: Any) -> Any:
        return b.add(sums, _pair_dot_portable(b, x, y))

    @pair_dot.variant(Isa.AVX2)
    def pair_dot_avx2(b: ir.IRBuilder, sums: Any, x: Any, y: Any) -> Any:
        return b.add(sums, _pair_dot_avx2(b, x, y))

    @pair_dot.variant(Isa.AVX512_VNNI)
    def pair_dot_vnni(b: ir.IRBuilder, sums: Any, x: Any, y: Any) -> Any:
        return _dpwssd(b, sums, x, y)

    @op(width.i16, i64, name=f"splat_pair{width.n}")
    def splat_pair(b: ir.IRBuilder, p: Any) -> Any:
        return b.bitcast(splat(b, load(b, p, I32, 2), ints), shorts)

    def start(name: str, centre: int, signed: bool) -> Op:
        def times(factor: int) -> Callable[..., Any]:
            def emit(b: ir.IRBuilder, quant_sum: Any) -> Any:
                return splat(b, b.mul(b.trunc(quant_sum, I32), ir.Constant(I32, -factor)), ints)

            return emit

        primitive = op(width.i32, i64, name=f"{name}{width.n}")(times(centre))
        primitive.variant(Isa.AVX512_VNNI)(times(centre + (BIAS if signed else 0)))
        return primitive

    def dot(name: str, quads_per_sum: int, signed: bool) -> Op:
        def summed(how: _Instructions) -> Callable[..., Any]:
            def emit(b: ir.IRBuilder, sums: Any, run: Any, x: Any) -> Any:
                for first in range(0, 8, quads_per_sum):
                    partial = _sum_of_quads(how, b, run, x, range(first, first + quads_per_sum), signed)
                    sums = b.add(sums, how.pair_dot(b, partial, const(partial.type, 1)))
                return sums

            return emit

        def with_vnni(b: ir.IRBuilder, sums: Any, run: Any, x: Any) -> Any:
            return _dpbusd_chain(b, sums, run, x, range(8))

        return _variants(op(width.i32, width.i32, run_type(width), i64, name=f"{name}{width.n}"), summed, with_vnni)

    def scaled_dot(name: str, quads_per_sum: int, scales_per_run: int, largest_half: int) -> Op:
        def summed(how: _Instructions) -> Callable[..., Any]:
            def emit(b: ir.IRBuilder, sums: Any, run: Any, x: Any, scales: Any) -> Any:
                for first in range(0, 8, quads_per_sum):
                    partial = _sum_of_quads(how, b, run, x, range(first, first + quads_per_sum), False)
                    scale = scales if scales_per_run == 1 else _doubled(b, scales, int(first >= 4))
                    sums = b.add(sums, how.pair_dot(b, partial, scale))
                return sums

            return emit

        def with_vnni(b: ir.IRBuilder, sums: Any, run: Any, x: Any, scales: Any) -> Any:
            words, zero = b.bitcast(scales, ints), const(ints, 0)
            second = b.ashr(words, const(ints, 16))
            if scales_per_run == 1:
                return b.add(sums, b.mul(_dpbusd_chain(b, zero, run, x, range(8)), second))
            low = _dpbusd_chain(b, zero, run, x, range(4))
            high = _dpbusd_chain(b, zero, run, x, range(4, 8))
            if largest_half < 2**15:
                both = b.or_(b.and_(low, const(ints, 0xFFFF)), b.shl(high, const(ints, 16)))
                return _dpwssd(b, sums, b.bitcast(both, shorts), scales)
            first = b.ashr(b.shl(words, const(ints, 16)), const(ints, 16))
            return b.add(sums, b.add(b.mul(low, first), b.mul(high, second)))

        typed = op(width.i32, width.i32, run_type(width), i64, width.i16, name=f"{name}{width.n}")
        return _variants(typed, summed, with_vnni)

    return Dots(pair_dot, splat_pair, start, dot, scaled_dot)


class _Instructions(NamedTuple):
    """Products in 16 bits; each takes the builder first."""

    products: Callable[..., Any]
    """(unsigned bytes, signed bytes) to 16 bits: u[2i] * s[2i] + u[2i+1] * s[2i+1], which must fit."""
    pair_dot: Callable[..., Any]
    """(i16, i16) to 32 bits: x[2i] * y[2i] + x[2i+1] * y[2i+1]."""
    with_sign: Callable[..., Any]
    """(bytes x, bytes w) to x where w > 0, -x where w < 0, 0 where w = 0 (or x where w = 0: the factor is 0)."""


def _variants(typed: Callable[..., Op], summed: Callable[..., Any], with_vnni: Callable[..., Any]) -> Op:
    primitive = typed(summed(_PORTABLE))
    primitive.variant(Isa.AVX2)(summed(_AVX2))
    primitive.variant(Isa.AVX512_VNNI)(with_vnni)
    return primitive


def _sum_of_quads(how: _Instructions, b: ir.IRBuilder, run: Any, x: Any, quads: range, signed: bool) -> Any:
    total: Any = None
    for g in quads:
        w: Any = b.extract_value(run, g)
        x4 = _splat_quad(b, x, g, w.type)
        if signed:
            magnitude = call(b, f"llvm.abs.v{w.type.count}i8", w.type, w, ir.Constant(I1, 0))
            products = how.products(b, magnitude, how.with_sign(b, x4, w))
        else:
            products = how.products(b, w, x4)
        total = products if total is None else b.add(total, products)
    return total


def _splat_quad(b: ir.IRBuilder, x: Any, g: int, vector: ir.VectorType) -> Any:
    four = load(b, b.add(x, ir.Constant(I64, 4 * g)), I32, 1)
    return b.bitcast(splat(b, four, ir.VectorType(I32, vector.count // 4)), vector)


def _dpbusd_chain(b: ir.IRBuilder, sums: Any, run: Any, x: Any, quads: range) -> Any:
    for g in quads:
        w: Any = b.extract_value(run, g)
        x4 = _splat_quad(b, x, g, w.type)
        words = sums.type
        name = f"llvm.x86.avx512.vpdpbusd.{32 * words.count}"
        sums = call(b, name, words, sums, b.bitcast(w, words), b.bitcast(x4, words))
    return sums


def _dpwssd(b: ir.IRBuilder, sums: Any, x: Any, y: Any) -> Any:
    words = sums.type
    name = f"llvm.x86.avx512.vpdpwssd.{32 * words.count}"
    return call(b, name, words, sums, b.bitcast(x, words), b.bitcast(y, words))


def _doubled(b: ir.IRBuilder, pairs: Any, which: int) -> Any:
    """Lanes 0 0 2 2 4 4 and so on, or 1 1 3 3 and so on."""
    return shuffle(b, pairs, [i & ~1 | which for i in range(pairs.type.count)])


def _products_portable(b: ir.IRBuilder, u: Any, s: Any) -> Any:
    shorts, count = ir.VectorType(I16, u.type.count), u.type.count
    wide = b.mul(b.zext(u, shorts), b.sext(s, shorts))
    return b.add(shuffle(b, wide, range(0, count, 2)), shuffle(b, wide, range(1, count, 2)))


def _pair_dot_portable(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    words, count = ir.VectorType(I32, x.type.count), x.type.count
    wide = b.mul(b.sext(x, words), b.sext(y, words))
    return b.add(shuffle(b, wide, range(0, count, 2)), shuffle(b, wide, range(1, count, 2)))


def _with_sign_portable(b: ir.IRBuilder, x: Any, w: Any) -> Any:
    zero = const(w.type, 0)
    return b.select(b.icmp_signed("<", w, zero), b.sub(zero, x), x)


def _products_avx2(b: ir.IRBuilder, u: Any, s: Any) -> Any:
    if u.type.count != 32:
        return _products_portable(b, u, s)
    return call(b, "llvm.x86.avx2.pmadd.ub.sw", ir.VectorType(I16, 16), u, s)


def _pair_dot_avx2(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    if x.type.count != 16:
        return _pair_dot_portable(b, x, y)
    return call(b, "llvm.x86.avx2.pmadd.wd", ir.VectorType(I32, 8), x, y)


def _with_sign_avx2(b: ir.IRBuilder, x: Any, w: Any) -> Any:
    if w.type.count != 32:
        return _with_sign_portable(b, x, w)
    return call(b, "llvm.x86.avx2.psign.b", w.type, x, w)


_PORTABLE = _Instructions(_products_portable, _pair_dot_portable, _with_sign_portable)
_AVX2 = _Instructions(_products_avx2, _pair_dot_avx2, _with_sign_avx2)
