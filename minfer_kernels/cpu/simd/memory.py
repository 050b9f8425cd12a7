"""Vectors to and from memory, whole or the first n lanes; float16 and bfloat16 widen and narrow on the way.

Addresses are int64 and need element alignment only. A partial access touches nothing past its n lanes (0 to all).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.simd.core import (
    F16,
    F32,
    I8,
    I16,
    I32,
    WIDTHS,
    Op,
    Width,
    as_lanes,
    call,
    const,
    f32,
    f32x8,
    i64,
    lanes,
    load,
    op,
    pointer,
    shuffle,
    splat,
    store,
    suffix,
    void,
)


def _load_f32(width: Width) -> Op:
    @op(width.f32, i64, name=f"load_f32x{width.n}")
    def emit(b: ir.IRBuilder, p: Any) -> Any:
        """A vector of float32."""
        return load(b, p, width.f32.llvm, 4)

    return emit


def _store_f32(width: Width) -> Op:
    @op(void, i64, width.f32, name=f"store_f32x{width.n}")
    def emit(b: ir.IRBuilder, p: Any, x: Any) -> None:
        """Store a vector of float32."""
        store(b, p, x, 4)

    return emit


def _load_f16(width: Width) -> Op:
    @op(width.f32, i64, name=f"load_f16x{width.n}")
    def emit(b: ir.IRBuilder, p: Any) -> Any:
        """A vector of float16, widened exactly."""
        return widen_f16(b, load(b, p, width.of(I16), 2))

    @emit.variant(Isa.AVX2)
    def with_f16c(b: ir.IRBuilder, p: Any) -> Any:
        return b.fpext(load(b, p, width.of(F16), 2), width.f32.llvm)

    return emit


def _store_f16(width: Width) -> Op:
    @op(void, i64, width.f32, name=f"store_f16x{width.n}")
    def emit(b: ir.IRBuilder, p: Any, x: Any) -> None:
        """Store the lanes as float16, rounded half to even; overflow becomes infinity."""
        store(b, p, narrow_f16(b, x), 2)

    @emit.variant(Isa.AVX2)
    def with_f16c(b: ir.IRBuilder, p: Any, x: Any) -> None:
        store(b, p, b.fptrunc(x, width.of(F16)), 2)

    return emit


def _load_bf16(width: Width) -> Op:
    @op(width.f32, i64, name=f"load_bf16x{width.n}")
    def emit(b: ir.IRBuilder, p: Any) -> Any:
        """A vector of bfloat16, widened exactly."""
        wide = b.zext(load(b, p, width.of(I16), 2), width.i32.llvm)
        return b.bitcast(b.shl(wide, const(width.i32.llvm, 16)), width.f32.llvm)

    return emit


def _load_i32(width: Width) -> Op:
    @op(width.i32, i64, name=f"load_i32x{width.n}")
    def emit(b: ir.IRBuilder, p: Any) -> Any:
        """A vector of int32."""
        return load(b, p, width.i32.llvm, 4)

    return emit


def _store_i32(width: Width) -> Op:
    @op(void, i64, width.i32, name=f"store_i32x{width.n}")
    def emit(b: ir.IRBuilder, p: Any, x: Any) -> None:
        """Store a vector of int32."""
        store(b, p, x, 4)

    return emit


def _load_i8(width: Width) -> Op:
    @op(width.i32, i64, name=f"load_i8x{width.n}")
    def emit(b: ir.IRBuilder, p: Any) -> Any:
        """A vector of int8, widened to int32."""
        return b.sext(load(b, p, width.of(I8), 1), width.i32.llvm)

    return emit


def _store_i8(width: Width) -> Op:
    @op(void, i64, width.i32, name=f"store_i8x{width.n}")
    def emit(b: ir.IRBuilder, p: Any, x: Any) -> None:
        """Store the low byte of each lane."""
        store(b, p, b.trunc(x, width.of(I8)), 1)

    return emit


def _first_lanes_of(width: Width) -> Op:
    @op(width.mask, i64, name=f"first_lanes{'' if width.n == 8 else width.n}")
    def emit(b: ir.IRBuilder, n: Any) -> Any:
        """A mask of the first n lanes."""
        return _first_lanes(b, n, width.n)

    return emit


def _load_f32_partial(width: Width) -> Op:
    @op(width.f32, i64, i64, f32, name=f"load_f32x{width.n}_partial")
    def emit(b: ir.IRBuilder, p: Any, n: Any, rest: Any) -> Any:
        """The first n float32 at p; `rest` in the other lanes."""
        return masked_load(b, p, n, splat(b, rest, width.f32.llvm), 4)

    return emit


def _store_f32_partial(width: Width) -> Op:
    @op(void, i64, i64, width.f32, name=f"store_f32x{width.n}_partial")
    def emit(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
        """Store the first n lanes."""
        _masked_store(b, p, n, x, 4)

    return emit


def _load_f16_partial(width: Width) -> Op:
    @op(width.f32, i64, i64, name=f"load_f16x{width.n}_partial")
    def emit(b: ir.IRBuilder, p: Any, n: Any) -> Any:
        """The first n float16 at p, widened; zeros in the other lanes."""
        return widen_f16(b, masked_load(b, p, n, const(width.of(I16), 0), 2))

    @emit.variant(Isa.AVX2)
    def with_f16c(b: ir.IRBuilder, p: Any, n: Any) -> Any:
        halves = b.bitcast(masked_load(b, p, n, const(width.of(I16), 0), 2), width.of(F16))
        return b.fpext(halves, width.f32.llvm)

    return emit


def _store_f16_partial(width: Width) -> Op:
    @op(void, i64, i64, width.f32, name=f"store_f16x{width.n}_partial")
    def emit(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
        """Store the first n lanes as float16."""
        _masked_store(b, p, n, narrow_f16(b, x), 2)

    @emit.variant(Isa.AVX2)
    def with_f16c(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
        _masked_store(b, p, n, b.bitcast(b.fptrunc(x, width.of(F16)), width.of(I16)), 2)

    return emit


load_f32x8, load_f32x16 = map(_load_f32, WIDTHS)
store_f32x8, store_f32x16 = map(_store_f32, WIDTHS)
load_f16x8, load_f16x16 = map(_load_f16, WIDTHS)
store_f16x8, store_f16x16 = map(_store_f16, WIDTHS)
load_bf16x8, load_bf16x16 = map(_load_bf16, WIDTHS)
load_i32x8, load_i32x16 = map(_load_i32, WIDTHS)
store_i32x8, store_i32x16 = map(_store_i32, WIDTHS)
load_i8x8, load_i8x16 = map(_load_i8, WIDTHS)
store_i8x8, store_i8x16 = map(_store_i8, WIDTHS)
first_lanes, first_lanes16 = map(_first_lanes_of, WIDTHS)
load_f32x8_partial, load_f32x16_partial = map(_load_f32_partial, WIDTHS)
store_f32x8_partial, store_f32x16_partial = map(_store_f32_partial, WIDTHS)
load_f16x8_partial, load_f16x16_partial = map(_load_f16_partial, WIDTHS)
store_f16x8_partial, store_f16x16_partial = map(_store_f16_partial, WIDTHS)


@op(f32x8, i64)
def load_f32x4_doubled(b: ir.IRBuilder, p: Any) -> Any:
    """Four float32, each in two adjacent lanes."""
    return shuffle(b, load(b, p, ir.VectorType(F32, 4), 4), [0, 0, 1, 1, 2, 2, 3, 3])


def _first_lanes(b: ir.IRBuilder, n: Any, count: int) -> Any:
    vector = ir.VectorType(I32, count)
    return b.icmp_signed("<", lanes(vector, range(count)), splat(b, b.trunc(n, I32), vector))


def masked_load(b: ir.IRBuilder, p: Any, n: Any, rest: Any, align: int) -> Any:
    """The first n lanes at p, and the others of `rest`."""
    vector = rest.type
    name = f"llvm.masked.load.{suffix(vector)}.p0"
    return call(b, name, vector, pointer(b, p, vector), ir.Constant(I32, align), _first_lanes(b, n, vector.count), rest)


def _masked_store(b: ir.IRBuilder, p: Any, n: Any, x: Any, align: int) -> None:
    name = f"llvm.masked.store.{suffix(x.type)}.p0"
    call(b, name, ir.VoidType(), x, pointer(b, p, x.type), ir.Constant(I32, align), _first_lanes(b, n, x.type.count))


def widen_f16(b: ir.IRBuilder, bits: Any) -> Any:
    """float16 bits to float32 by integer arithmetic, as vcvtph2ps does it: exact, NaNs made quiet."""
    ints, floats = as_lanes(bits.type, I32), as_lanes(bits.type, F32)
    h = b.zext(bits, ints)
    sign = b.shl(b.and_(h, const(ints, 0x8000)), const(ints, 16))
    magnitude = b.shl(b.and_(h, const(ints, 0x7FFF)), const(ints, 13))
    normal = b.add(magnitude, const(ints, 112 << 23))
    # A subnormal is its integer value times 2**-24: both factors and the product are exact.
    counted = b.sitofp(b.and_(h, const(ints, 0x03FF)), floats)
    subnormal = b.bitcast(b.fmul(counted, const(floats, 2.0**-24)), ints)
    special = b.or_(magnitude, const(ints, 0x7F800000))
    is_nan = b.icmp_unsigned(">", magnitude, const(ints, 0x0F800000))
    special = b.select(is_nan, b.or_(special, const(ints, 0x00400000)), special)
    wide = b.select(b.icmp_unsigned("<", magnitude, const(ints, 0x00800000)), subnormal, normal)
    wide = b.select(b.icmp_unsigned(">=", magnitude, const(ints, 0x0F800000)), special, wide)
    return b.bitcast(b.or_(wide, sign), floats)


def narrow_f16(b: ir.IRBuilder, x: Any) -> Any:
    """float32 to float16 bits by integer arithmetic, as vcvtps2ph does it: half to even, NaNs made quiet."""
    ints, floats = as_lanes(x.type, I32), x.type
    bits = b.bitcast(x, ints)
    sign = b.lshr(b.and_(bits, const(ints, 0x80000000)), const(ints, 16))
    magnitude = b.and_(bits, const(ints, 0x7FFFFFFF))
    # Round to even by adding just under half a unit, plus one where the kept part is odd.
    odd = b.and_(b.lshr(magnitude, const(ints, 13)), const(ints, 1))
    rebased = b.sub(magnitude, const(ints, 112 << 23))
    normal = b.lshr(b.add(b.add(rebased, const(ints, 0x0FFF)), odd), const(ints, 13))
    # Below 2**-14, adding 0.5 makes the float unit round at the subnormal's last place (2**-24).
    aligned = b.bitcast(b.fadd(b.bitcast(magnitude, floats), const(floats, 0.5)), ints)
    subnormal = b.sub(aligned, const(ints, 0x3F000000))
    payload = b.and_(b.lshr(magnitude, const(ints, 13)), const(ints, 0x03FF))
    nan = b.or_(payload, const(ints, 0x7E00))
    narrow = b.select(b.icmp_unsigned("<", magnitude, const(ints, 113 << 23)), subnormal, normal)
    narrow = b.select(b.icmp_unsigned(">=", magnitude, const(ints, 143 << 23)), const(ints, 0x7C00), narrow)
    narrow = b.select(b.icmp_unsigned(">", magnitude, const(ints, 0x7F800000)), nan, narrow)
    return b.trunc(b.or_(narrow, sign), as_lanes(ints, I16))
