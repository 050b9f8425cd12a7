"""Vectors to and from memory, whole or the first n lanes; float16 and bfloat16 widen and narrow on the way.

Addresses are int64 and need element alignment only. A partial access touches nothing past its n lanes (0 to 8).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.simd.core import (
    F32,
    I32,
    V8F16,
    V8F32,
    V8I8,
    V8I16,
    V8I32,
    call,
    const,
    f32,
    f32x8,
    i32x8,
    i64,
    lanes,
    load,
    mask8,
    op,
    pointer,
    shuffle,
    splat,
    store,
    void,
)


@op(f32x8, i64)
def load_f32x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight float32."""
    return load(b, p, V8F32, 4)


@op(void, i64, f32x8)
def store_f32x8(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store eight float32."""
    store(b, p, x, 4)


@op(f32x8, i64)
def load_f16x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight float16, widened exactly."""
    return _widen_f16_portable(b, load(b, p, V8I16, 2))


@load_f16x8.variant(Isa.AVX2)
def _load_f16x8_avx2(b: ir.IRBuilder, p: Any) -> Any:
    return b.fpext(load(b, p, V8F16, 2), V8F32)


@op(void, i64, f32x8)
def store_f16x8(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store eight lanes as float16, rounded half to even; overflow becomes infinity."""
    store(b, p, _narrow_f16_portable(b, x), 2)


@store_f16x8.variant(Isa.AVX2)
def _store_f16x8_avx2(b: ir.IRBuilder, p: Any, x: Any) -> None:
    store(b, p, b.fptrunc(x, V8F16), 2)


@op(f32x8, i64)
def load_bf16x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight bfloat16, widened exactly."""
    wide = b.zext(load(b, p, V8I16, 2), V8I32)
    return b.bitcast(b.shl(wide, const(V8I32, 16)), V8F32)


@op(i32x8, i64)
def load_i8x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight int8, widened."""
    return b.sext(load(b, p, V8I8, 1), V8I32)


@op(void, i64, i32x8)
def store_i8x8(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the low byte of each lane."""
    store(b, p, b.trunc(x, V8I8), 1)


@op(mask8, i64)
def first_lanes(b: ir.IRBuilder, n: Any) -> Any:
    """A mask of the first n lanes."""
    return _first_lanes(b, n)


@op(f32x8, i64, i64, f32)
def load_f32x8_partial(b: ir.IRBuilder, p: Any, n: Any, rest: Any) -> Any:
    """The first n float32 at p; `rest` in the other lanes."""
    return _masked_load(b, p, n, splat(b, rest, V8F32), 4)


@op(void, i64, i64, f32x8)
def store_f32x8_partial(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
    """Store the first n lanes."""
    _masked_store(b, p, n, x, 4)


@op(f32x8, i64, i64)
def load_f16x8_partial(b: ir.IRBuilder, p: Any, n: Any) -> Any:
    """The first n float16 at p, widened; zeros in the other lanes."""
    return _widen_f16_portable(b, _masked_load(b, p, n, const(V8I16, 0), 2))


@load_f16x8_partial.variant(Isa.AVX2)
def _load_f16x8_partial_avx2(b: ir.IRBuilder, p: Any, n: Any) -> Any:
    return b.fpext(b.bitcast(_masked_load(b, p, n, const(V8I16, 0), 2), V8F16), V8F32)


@op(void, i64, i64, f32x8)
def store_f16x8_partial(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
    """Store the first n lanes as float16."""
    _masked_store(b, p, n, _narrow_f16_portable(b, x), 2)


@store_f16x8_partial.variant(Isa.AVX2)
def _store_f16x8_partial_avx2(b: ir.IRBuilder, p: Any, n: Any, x: Any) -> None:
    _masked_store(b, p, n, b.bitcast(b.fptrunc(x, V8F16), V8I16), 2)


@op(f32x8, i64)
def load_f32x4_doubled(b: ir.IRBuilder, p: Any) -> Any:
    """Four float32, each in two adjacent lanes."""
    return shuffle(b, load(b, p, ir.VectorType(F32, 4), 4), [0, 0, 1, 1, 2, 2, 3, 3])


def _first_lanes(b: ir.IRBuilder, n: Any) -> Any:
    return b.icmp_signed("<", lanes(V8I32, range(8)), splat(b, b.trunc(n, I32), V8I32))


def _masked_load(b: ir.IRBuilder, p: Any, n: Any, rest: Any, align: int) -> Any:
    vector = rest.type
    name = f"llvm.masked.load.{_suffix(vector)}.p0"
    return call(b, name, vector, pointer(b, p, vector), ir.Constant(I32, align), _first_lanes(b, n), rest)


def _masked_store(b: ir.IRBuilder, p: Any, n: Any, x: Any, align: int) -> None:
    name = f"llvm.masked.store.{_suffix(x.type)}.p0"
    call(b, name, ir.VoidType(), x, pointer(b, p, x.type), ir.Constant(I32, align), _first_lanes(b, n))


def _suffix(vector: ir.VectorType) -> str:
    return "v8f32" if vector == V8F32 else "v8i16"


def _widen_f16_portable(b: ir.IRBuilder, bits: Any) -> Any:
    """float16 bits to float32 by integer arithmetic, as vcvtph2ps does it: exact, NaNs made quiet."""
    h = b.zext(bits, V8I32)
    sign = b.shl(b.and_(h, const(V8I32, 0x8000)), const(V8I32, 16))
    magnitude = b.shl(b.and_(h, const(V8I32, 0x7FFF)), const(V8I32, 13))
    normal = b.add(magnitude, const(V8I32, 112 << 23))
    # A subnormal is its integer value times 2**-24: both factors and the product are exact.
    counted = b.sitofp(b.and_(h, const(V8I32, 0x03FF)), V8F32)
    subnormal = b.bitcast(b.fmul(counted, const(V8F32, 2.0**-24)), V8I32)
    special = b.or_(magnitude, const(V8I32, 0x7F800000))
    is_nan = b.icmp_unsigned(">", magnitude, const(V8I32, 0x0F800000))
    special = b.select(is_nan, b.or_(special, const(V8I32, 0x00400000)), special)
    wide = b.select(b.icmp_unsigned("<", magnitude, const(V8I32, 0x00800000)), subnormal, normal)
    wide = b.select(b.icmp_unsigned(">=", magnitude, const(V8I32, 0x0F800000)), special, wide)
    return b.bitcast(b.or_(wide, sign), V8F32)


def _narrow_f16_portable(b: ir.IRBuilder, x: Any) -> Any:
    """float32 to float16 bits by integer arithmetic, as vcvtps2ph does it: half to even, NaNs made quiet."""
    bits = b.bitcast(x, V8I32)
    sign = b.lshr(b.and_(bits, const(V8I32, 0x80000000)), const(V8I32, 16))
    magnitude = b.and_(bits, const(V8I32, 0x7FFFFFFF))
    # Round to even by adding just under half a unit, plus one where the kept part is odd.
    odd = b.and_(b.lshr(magnitude, const(V8I32, 13)), const(V8I32, 1))
    rebased = b.sub(magnitude, const(V8I32, 112 << 23))
    normal = b.lshr(b.add(b.add(rebased, const(V8I32, 0x0FFF)), odd), const(V8I32, 13))
    # Below 2**-14, adding 0.5 makes the float unit round at the subnormal's last place (2**-24).
    aligned = b.bitcast(b.fadd(b.bitcast(magnitude, V8F32), const(V8F32, 0.5)), V8I32)
    subnormal = b.sub(aligned, const(V8I32, 0x3F000000))
    payload = b.and_(b.lshr(magnitude, const(V8I32, 13)), const(V8I32, 0x03FF))
    nan = b.or_(payload, const(V8I32, 0x7E00))
    narrow = b.select(b.icmp_unsigned("<", magnitude, const(V8I32, 113 << 23)), subnormal, normal)
    narrow = b.select(b.icmp_unsigned(">=", magnitude, const(V8I32, 143 << 23)), const(V8I32, 0x7C00), narrow)
    narrow = b.select(b.icmp_unsigned(">", magnitude, const(V8I32, 0x7F800000)), nan, narrow)
    return b.trunc(b.or_(narrow, sign), V8I16)
