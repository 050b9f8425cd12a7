"""Scalars: at addresses (int64), and the few operations on them that Numba would bring its runtime for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.simd.core import (
    F32,
    I8,
    I16,
    I32,
    I64,
    call,
    f32,
    i64,
    load,
    op,
    pointer,
    store,
    void,
)


@op(f32, i64)
def load_f32(b: ir.IRBuilder, p: Any) -> Any:
    """The float32 at p."""
    return load(b, p, F32, 4)


@op(void, i64, f32)
def store_f32(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store a float32."""
    store(b, p, x, 4)


@op(i64, i64)
def load_i64(b: ir.IRBuilder, p: Any) -> Any:
    """The int64 at p."""
    return load(b, p, I64, 8)


@op(void, i64, i64)
def store_i64(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store an int64."""
    store(b, p, x, 8)


@op(i64, i64)
def load_i32(b: ir.IRBuilder, p: Any) -> Any:
    """The int32 at p, as int64."""
    return b.sext(load(b, p, I32, 4), I64)


@op(void, i64, i64)
def store_i32(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the low 32 bits of an int64."""
    store(b, p, b.trunc(x, I32), 4)


@op(i64, i64)
def load_i16(b: ir.IRBuilder, p: Any) -> Any:
    """The int16 at p, as int64."""
    return b.sext(load(b, p, I16, 2), I64)


@op(void, i64, i64)
def store_i16(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the low 16 bits of an int64."""
    store(b, p, b.trunc(x, I16), 2)


@op(i64, i64)
def load_u8(b: ir.IRBuilder, p: Any) -> Any:
    """The byte at p, as int64."""
    return b.zext(load(b, p, I8, 1), I64)


@op(void, i64, i64)
def store_i8(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the low byte of an int64."""
    store(b, p, b.trunc(x, I8), 1)


@op(i64, i64)
def load_u16(b: ir.IRBuilder, p: Any) -> Any:
    """The two bytes at p, which may lie anywhere, as int64."""
    return b.zext(load(b, p, I16, 1), I64)


@op(i64, i64)
def load_u32(b: ir.IRBuilder, p: Any) -> Any:
    """The four bytes at p, which may lie anywhere, as int64."""
    return b.zext(load(b, p, I32, 1), I64)


@op(i64, i64)
def load_u64(b: ir.IRBuilder, p: Any) -> Any:
    """The eight bytes at p, which may lie anywhere; the highest bit is the sign."""
    return load(b, p, I64, 1)


@op(i64, f32)
def bits_of_f32(b: ir.IRBuilder, x: Any) -> Any:
    """The bit pattern of a float32, zero-extended."""
    return b.zext(b.bitcast(x, I32), I64)


@op(f32, i64)
def f32_of_bits(b: ir.IRBuilder, x: Any) -> Any:
    """The float32 with the low 32 bits of x."""
    return b.bitcast(b.trunc(x, I32), F32)


@op(i64, i64, i64)
def smaller(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The smaller int64 (Numba's own `min` brings its runtime along)."""
    return b.select(b.icmp_signed("<", x, y), x, y)


@op(i64, i64, i64)
def larger(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The larger int64."""
    return b.select(b.icmp_signed(">", x, y), x, y)


@op(f32, f32, f32)
def larger_f32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x > y, else y, as `maximum` for one lane."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@op(f32, f32)
def sqrt_f32(b: ir.IRBuilder, x: Any) -> Any:
    """Correctly rounded square root (math.sqrt on a float32 would call libm)."""
    return call(b, "llvm.sqrt.f32", F32, x)


@op(void, i64)
def prefetch(b: ir.IRBuilder, p: Any) -> None:
    """Ask for the cache line at p, to be read soon; any address is safe."""
    read, keep, data = ir.Constant(I32, 0), ir.Constant(I32, 3), ir.Constant(I32, 1)
    call(b, "llvm.prefetch.p0", ir.VoidType(), pointer(b, p, I8), read, keep, data)


@op(void, i64)
def prefetch_l2(b: ir.IRBuilder, p: Any) -> None:
    """As `prefetch`, into the second cache: for what is read later than that is for."""
    read, second, data = ir.Constant(I32, 0), ir.Constant(I32, 2), ir.Constant(I32, 1)
    call(b, "llvm.prefetch.p0", ir.VoidType(), pointer(b, p, I8), read, second, data)
