"""Arithmetic, comparison and conversion lane by lane, with one meaning on every instruction set, bit for bit.

Nothing contracts or reassociates; a fused multiply-add happens where `fma` is written and nowhere else.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.simd.core import (
    I32,
    V8F32,
    V8I32,
    call,
    const,
    f32,
    f32x8,
    i32x8,
    i64,
    mask8,
    op,
    splat,
)


@op(f32x8, f32)
def splat_f32x8(b: ir.IRBuilder, x: Any) -> Any:
    """The same float32 in every lane."""
    return splat(b, x, V8F32)


@op(i32x8, i64)
def splat_i32x8(b: ir.IRBuilder, x: Any) -> Any:
    """The low 32 bits of x in every lane."""
    return splat(b, b.trunc(x, I32), V8I32)


@op(f32x8, f32x8, f32x8, operators=[operator.add])
def add(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x + y."""
    return b.fadd(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.sub])
def subtract(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x - y."""
    return b.fsub(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.mul])
def multiply(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x * y."""
    return b.fmul(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.truediv])
def divide(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x / y, correctly rounded."""
    return b.fdiv(x, y)


@op(f32x8, f32x8, operators=[operator.neg])
def negate(b: ir.IRBuilder, x: Any) -> Any:
    """-x: flips the sign bit."""
    return b.fneg(x)


@op(f32x8, f32x8, f32x8, f32x8)
def fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""
    return call(b, "llvm.fma.v8f32", V8F32, x, y, z)


@op(f32x8, f32x8, f32x8)
def maximum(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x > y, else y (so y where either is NaN)."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@op(f32x8, f32x8, f32x8)
def minimum(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x < y, else y (so y where either is NaN)."""
    return b.select(b.fcmp_ordered("<", x, y), x, y)


@op(f32x8, f32x8)
def absolute(b: ir.IRBuilder, x: Any) -> Any:
    """Clears the sign bit."""
    return call(b, "llvm.fabs.v8f32", V8F32, x)


@op(f32x8, f32x8)
def sqrt(b: ir.IRBuilder, x: Any) -> Any:
    """Correctly rounded square root."""
    return call(b, "llvm.sqrt.v8f32", V8F32, x)


@op(f32x8, f32x8)
def exp(b: ir.IRBuilder, x: Any) -> Any:
    """e**x within 2 ulp; 0 below -104, infinity above 89, subnormals rounded, NaN kept.

    Cephes' expf: x = n ln2 + r with ln2 split in two, a polynomial of degree 7 in r, and 2**n in two factors
    so that the ends of the range round instead of wrapping.
    """
    x = b.select(b.fcmp_ordered("<", x, const(V8F32, -110.0)), const(V8F32, -110.0), x)
    x = b.select(b.fcmp_ordered(">", x, const(V8F32, 100.0)), const(V8F32, 100.0), x)
    # Adding 1.5 * 2**23 rounds to an integer and leaves it in the low mantissa bits.
    magic = const(V8F32, 12582912.0)
    shifted = _fma(b, x, const(V8F32, 1.44269504088896341), magic)
    n = b.fsub(shifted, magic)
    r = _fma(b, n, const(V8F32, -0.693359375), x)
    r = _fma(b, n, const(V8F32, 2.12194440e-4), r)
    p = const(V8F32, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = _fma(b, p, r, const(V8F32, c))
    p = b.fadd(_fma(b, p, b.fmul(r, r), r), const(V8F32, 1.0))
    exponent = b.sub(b.bitcast(shifted, V8I32), b.bitcast(magic, V8I32))
    half = b.ashr(exponent, const(V8I32, 1))
    return b.fmul(b.fmul(p, _power_of_two(b, half)), _power_of_two(b, b.sub(exponent, half)))


@op(f32x8, f32x8)
def round_even(b: ir.IRBuilder, x: Any) -> Any:
    """To the nearest integer, halves to even."""
    return call(b, "llvm.nearbyint.v8f32", V8F32, x)


@op(i32x8, f32x8)
def to_i32x8(b: ir.IRBuilder, x: Any) -> Any:
    """Truncate to int32; the lanes must be in range."""
    return b.fptosi(x, V8I32)


@op(f32x8, i32x8)
def to_f32x8(b: ir.IRBuilder, x: Any) -> Any:
    """To float32, rounded half to even."""
    return b.sitofp(x, V8F32)


@op(i32x8, i32x8, i32x8, operators=[operator.add])
def add_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x + y, wrapping."""
    return b.add(x, y)


@op(i32x8, i32x8, i32x8, operators=[operator.sub])
def subtract_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x - y, wrapping."""
    return b.sub(x, y)


@op(i32x8, i32x8, i32x8, operators=[operator.mul])
def multiply_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x * y, wrapping."""
    return b.mul(x, y)


@op(i32x8, f32x8)
def magnitude_bits(b: ir.IRBuilder, x: Any) -> Any:
    """Bit patterns without the sign: ordered as the magnitudes are, infinity 0x7F800000, NaNs above."""
    return b.and_(b.bitcast(x, V8I32), const(V8I32, 0x7FFFFFFF))


@op(i32x8, i32x8, i32x8)
def maximum_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The larger of signed lanes."""
    return b.select(b.icmp_signed(">", x, y), x, y)


@op(mask8, f32x8, f32x8, operators=[operator.lt])
def less(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x < y; false where either is NaN."""
    return b.fcmp_ordered("<", x, y)


@op(mask8, f32x8, f32x8, operators=[operator.gt])
def greater(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x > y; false where either is NaN."""
    return b.fcmp_ordered(">", x, y)


@op(f32x8, mask8, f32x8, f32x8)
def select(b: ir.IRBuilder, mask: Any, x: Any, y: Any) -> Any:
    """x where the mask is set, else y."""
    return b.select(mask, x, y)


def _fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    return call(b, "llvm.fma.v8f32", V8F32, x, y, z)


def _power_of_two(b: ir.IRBuilder, exponent: Any) -> Any:
    return b.bitcast(b.shl(b.add(exponent, const(V8I32, 127)), const(V8I32, 23)), V8F32)
