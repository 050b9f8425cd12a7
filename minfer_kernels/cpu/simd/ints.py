"""Integer primitives of the matmul kernels: runs of 32 quants of eight rows, and their dot products.

A *run* is eight vectors of 32 bytes, one per quad: lane byte 4r + j of vector g is element 4g + j of row r.
`load_*_run` decode it from the bit planes of `layouts`; a `Dot` multiplies it with 32 activation bytes.

Products are summed in 16 bits for as many quads as cannot overflow with |x| <= 127, then widened to 32 bits
and multiplied by a small scale in the same instruction (a constant 1 where there is none). Every step is
exact, so the instruction sets agree whatever instructions they use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types

from minfer_kernels.cpu.simd.core import (
    I1,
    I8,
    I16,
    I32,
    I64,
    Isa,
    Op,
    call,
    const,
    f32x8,
    i8x32,
    i16x16,
    i32x8,
    i64,
    lanes,
    load,
    op,
    shuffle,
    splat,
)

_B32 = ir.VectorType(I8, 32)
_B16 = ir.VectorType(I8, 16)
_B8 = ir.VectorType(I8, 8)
_S16 = ir.VectorType(I16, 16)
_S32 = ir.VectorType(I16, 32)
_I8 = ir.VectorType(I32, 8)
_I16 = ir.VectorType(I32, 16)
_RUN = ir.ArrayType(_B32, 8)
_EVEN16, _ODD16 = range(0, 16, 2), range(1, 16, 2)

run = types.UniTuple(i8x32, 8)
"""The Numba type of a run."""


class _Instructions(NamedTuple):
    """The four instructions that differ between instruction sets; each takes the builder first."""

    products: Callable[..., Any]
    """(u8x32, i8x32) to i16x16: u[2i] * s[2i] + u[2i+1] * s[2i+1], which must fit."""
    pair_dot: Callable[..., Any]
    """(i16x16, i16x16) to i32x8: x[2i] * y[2i] + x[2i+1] * y[2i+1]."""
    with_sign: Callable[..., Any]
    """(i8x32 x, i8x32 w) to x where w > 0, -x where w < 0, 0 where w = 0 (or x where w = 0: the factor is 0)."""
    look_up: Callable[..., Any]
    """(16 byte values, i8x32 indices below 16) to the bytes they name."""


def _products_portable(b: ir.IRBuilder, u: Any, s: Any) -> Any:
    wide = b.mul(b.zext(u, _S32), b.sext(s, _S32))
    return b.add(shuffle(b, wide, range(0, 32, 2)), shuffle(b, wide, range(1, 32, 2)))


def _pair_dot_portable(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    wide = b.mul(b.sext(x, _I16), b.sext(y, _I16))
    return b.add(shuffle(b, wide, _EVEN16), shuffle(b, wide, _ODD16))


def _with_sign_portable(b: ir.IRBuilder, x: Any, w: Any) -> Any:
    return b.select(b.icmp_signed("<", w, const(_B32, 0)), b.sub(const(_B32, 0), x), x)


def _look_up_portable(b: ir.IRBuilder, values: Sequence[int], index: Any) -> Any:
    found: Any = const(_B32, values[0])
    for i, value in enumerate(values[1:], 1):
        found = b.select(b.icmp_unsigned("==", index, const(_B32, i)), const(_B32, value), found)
    return found


def _products_avx2(b: ir.IRBuilder, u: Any, s: Any) -> Any:
    return call(b, "llvm.x86.avx2.pmadd.ub.sw", _S16, u, s)


def _pair_dot_avx2(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    return call(b, "llvm.x86.avx2.pmadd.wd", _I8, x, y)


def _with_sign_avx2(b: ir.IRBuilder, x: Any, w: Any) -> Any:
    return call(b, "llvm.x86.avx2.psign.b", _B32, x, w)


def _look_up_avx2(b: ir.IRBuilder, values: Sequence[int], index: Any) -> Any:
    return call(b, "llvm.x86.avx2.pshuf.b", _B32, lanes(_B32, [*values, *values]), index)


_PORTABLE = _Instructions(_products_portable, _pair_dot_portable, _with_sign_portable, _look_up_portable)
_AVX2 = _Instructions(_products_avx2, _pair_dot_avx2, _with_sign_avx2, _look_up_avx2)

WithInstructions = Callable[..., Any]


def _per_isa(result: Any, *operands: Any) -> Callable[[WithInstructions], Op]:
    """Make a primitive from an emitter (instructions, builder, *operands), once for each instruction set."""

    def wrap(emit: WithInstructions) -> Op:
        def bound(instructions: _Instructions) -> Callable[..., Any]:
            def emit_with(b: ir.IRBuilder, *args: Any) -> Any:
                return emit(instructions, b, *args)

            emit_with.__name__ = emit.__name__
            return emit_with

        primitive = op(result, *operands)(bound(_PORTABLE))
        primitive.variant(Isa.AVX2)(bound(_AVX2))
        return primitive

    return wrap


# Eight numbers as int32 and float32 lanes.


@op(i32x8, i64)
def load_u8x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight unsigned bytes, widened."""
    return b.zext(load(b, p, _B8, 1), _I8)


@op(i32x8, i32x8, i64, i64)
def bit_field(b: ir.IRBuilder, x: Any, shift: Any, mask: Any) -> Any:
    """(x >> shift) & mask, for lanes that are not negative."""
    moved = b.lshr(x, splat(b, b.trunc(shift, I32), _I8))
    return b.and_(moved, splat(b, b.trunc(mask, I32), _I8))


@op(i32x8, i64)
def bits_of_byte(b: ir.IRBuilder, byte: Any) -> Any:
    """Bit l of the byte in lane l, as 0 or 1."""
    moved = b.lshr(splat(b, b.trunc(byte, I32), _I8), lanes(_I8, range(8)))
    return b.and_(moved, const(_I8, 1))


@op(f32x8, f32x8)
def splat_first(b: ir.IRBuilder, x: Any) -> Any:
    """Lane 0 in every lane."""
    return shuffle(b, x, [0] * 8)


def look_up_of(name: str, values: Sequence[int]) -> Op:
    """A primitive (i32x8 indices) to the `values` they name."""

    def emit(b: ir.IRBuilder, index: Any) -> Any:
        found: Any = const(_I8, values[0])
        for i, value in enumerate(values[1:], 1):
            found = b.select(b.icmp_unsigned("==", index, const(_I8, i)), const(_I8, value), found)
        return found

    emit.__name__ = name
    return op(i32x8, i32x8)(emit)


# Vectors and scales.


@op(i32x8)
def zero_i32x8(_b: ir.IRBuilder) -> Any:
    """Zeros."""
    return const(_I8, 0)


@op(i16x16)
def ones_i16x16(_b: ir.IRBuilder) -> Any:
    """Ones: the scale of a dot product that has none."""
    return const(_S16, 1)


@op(i16x16, i64)
def splat_i16x2(b: ir.IRBuilder, p: Any) -> Any:
    """The two int16 at p in every pair of lanes."""
    return b.bitcast(splat(b, load(b, p, I32, 2), _I8), _S16)


@op(i16x16, i64)
def load_u8x8_doubled(b: ir.IRBuilder, p: Any) -> Any:
    """Eight bytes, widened: byte r in lanes 2r and 2r + 1."""
    wide = b.zext(load(b, p, _B8, 1), _I8)
    return b.bitcast(b.or_(wide, b.shl(wide, const(_I8, 16))), _S16)


@op(i16x16, i64)
def load_u8x16(b: ir.IRBuilder, p: Any) -> Any:
    """Sixteen unsigned bytes, widened."""
    return b.zext(load(b, p, _B16, 1), _S16)


@op(i16x16, i64)
def load_i8x16(b: ir.IRBuilder, p: Any) -> Any:
    """Sixteen signed bytes, widened."""
    return b.sext(load(b, p, _B16, 1), _S16)


@op(i16x16, i16x16)
def low_nibbles(b: ir.IRBuilder, x: Any) -> Any:
    """Bits 0-3 of each lane."""
    return b.and_(x, const(_S16, 15))


@op(i16x16, i16x16)
def high_nibbles(b: ir.IRBuilder, x: Any) -> Any:
    """Bits 4-15 of each lane, moved down."""
    return b.lshr(x, const(_S16, 4))


@op(i16x16, i16x16)
def even_doubled(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 0 0 2 2 4 4 and so on."""
    return shuffle(b, x, [i & ~1 for i in range(16)])


@op(i16x16, i16x16)
def odd_doubled(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 1 1 3 3 5 5 and so on."""
    return shuffle(b, x, [i | 1 for i in range(16)])


@op(i32x8, i32x8, i64)
def times_power_of_two(b: ir.IRBuilder, x: Any, exponent: Any) -> Any:
    """x * 2 ** exponent, wrapping."""
    return b.shl(x, splat(b, b.trunc(exponent, I32), _I8))


@_per_isa(i32x8, i16x16, i16x16)
def pair_dot(how: _Instructions, b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x[2r] * y[2r] + x[2r + 1] * y[2r + 1] in lane r."""
    return how.pair_dot(b, x, y)


# Runs from bit planes.


@op(run, i64)
def load_u4_run(b: ir.IRBuilder, q4: Any) -> Any:
    """Quants 0-15 from a plane of 4 bits."""
    return _pack_run(b, _nibbles(b, q4))


@op(run, i64, i64)
def load_u5_run(b: ir.IRBuilder, q4: Any, q1: Any) -> Any:
    """Quants 0-31 from planes of 4 and 1 bits."""
    return _pack_run(b, _joined(b, _nibbles(b, q4), _single_bits(b, q1, 4)))


@op(run, i64, i64)
def load_u6_run(b: ir.IRBuilder, q4: Any, q2: Any) -> Any:
    """Quants 0-63 from planes of 4 and 2 bits."""
    return _pack_run(b, _joined(b, _nibbles(b, q4), _bit_pairs(b, q2, 4)))


@op(run, i64)
def load_u2_run(b: ir.IRBuilder, q2: Any) -> Any:
    """Quants 0-3 from a plane of 2 bits."""
    return _pack_run(b, _bit_pairs(b, q2, 0))


@op(run, i64, i64)
def load_u3_run(b: ir.IRBuilder, q2: Any, q1: Any) -> Any:
    """Quants 0-7 from planes of 2 and 1 bits."""
    return _pack_run(b, _joined(b, _bit_pairs(b, q2, 0), _single_bits(b, q1, 2)))


@op(run, i64)
def load_i8_run(b: ir.IRBuilder, q8: Any) -> Any:
    """Signed bytes."""
    return _pack_run(b, [_bytes_at(b, q8, g) for g in range(8)])


def table_run(name: str, values: Sequence[int]) -> Op:
    """A primitive that loads a run of 4-bit indices and gives the signed byte `values` that they name."""

    def emit(how: _Instructions, b: ir.IRBuilder, q4: Any) -> Any:
        return _pack_run(b, [how.look_up(b, values, index) for index in _nibbles(b, q4)])

    emit.__name__ = name
    return _per_isa(run, i64)(emit)


# Dot products of a run.


def dot_of(name: str, quads_per_sum: int, signed: bool) -> Op:
    """A primitive (run, address of 32 int8, i16x16, i16x16) to i32x8: the scaled dot products of eight rows.

    Lane r is the sum over quads 0-3 times `scale_low` plus the sum over quads 4-7 times `scale_high`; the
    scale of row r stands in lanes 2r and 2r + 1. `quads_per_sum` products of two are summed in 16 bits:
    unsigned quants up to q need 2 * q * 127 * quads_per_sum < 2 ** 15. With 8 the scales must be equal.
    """

    def emit(how: _Instructions, b: ir.IRBuilder, quants: Any, x: Any, scale_low: Any, scale_high: Any) -> Any:
        total: Any = None
        for first in range(0, 8, quads_per_sum):
            partial: Any = None
            for g in range(first, first + quads_per_sum):
                product = _quad_products(how, b, b.extract_value(quants, g), x, g, signed)
                partial = product if partial is None else b.add(partial, product)
            scaled = how.pair_dot(b, partial, scale_low if first < 4 else scale_high)
            total = scaled if total is None else b.add(total, scaled)
        return total

    emit.__name__ = name
    return _per_isa(i32x8, run, i64, i16x16, i16x16)(emit)


def _quad_products(how: _Instructions, b: ir.IRBuilder, w: Any, x: Any, g: int, signed: bool) -> Any:
    four = load(b, b.add(x, ir.Constant(I64, 4 * g)), I32, 1)
    x4 = b.bitcast(splat(b, four, _I8), _B32)
    if not signed:
        return how.products(b, w, x4)
    magnitude = call(b, "llvm.abs.v32i8", _B32, w, ir.Constant(I1, 0))
    return how.products(b, magnitude, how.with_sign(b, x4, w))


def _pack_run(b: ir.IRBuilder, quads: Sequence[Any]) -> Any:
    packed: Any = ir.Constant(_RUN, ir.Undefined)
    for g, quad in enumerate(quads):
        packed = b.insert_value(packed, quad, g)
    return packed


def _bytes_at(b: ir.IRBuilder, p: Any, index: int) -> Any:
    return load(b, b.add(p, ir.Constant(I64, 32 * index)), _B32, 1)


def _moved(b: ir.IRBuilder, x: Any, source: int, target: int, mask: int) -> Any:
    """The bits of every byte that `mask << source` selects, moved to bit `target`."""
    words, distance = b.bitcast(x, _S16), target - source
    if distance > 0:
        words = b.shl(words, const(_S16, distance))
    elif distance < 0:
        words = b.lshr(words, const(_S16, -distance))
    return b.and_(b.bitcast(words, _B32), const(_B32, mask << target))


def _nibbles(b: ir.IRBuilder, p: Any) -> list[Any]:
    units = [_bytes_at(b, p, u) for u in range(4)]
    return [_moved(b, units[g % 4], 4 * (g // 4), 0, 15) for g in range(8)]


def _bit_pairs(b: ir.IRBuilder, p: Any, target: int) -> list[Any]:
    units = [_bytes_at(b, p, u) for u in range(2)]
    return [_moved(b, units[g // 4], 2 * (g % 4), target, 3) for g in range(8)]


def _single_bits(b: ir.IRBuilder, p: Any, target: int) -> list[Any]:
    unit = _bytes_at(b, p, 0)
    return [_moved(b, unit, g, target, 1) for g in range(8)]


def _joined(b: ir.IRBuilder, low: Sequence[Any], high: Sequence[Any]) -> list[Any]:
    return [b.or_(x, y) for x, y in zip(low, high, strict=True)]
