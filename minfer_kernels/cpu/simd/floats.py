"""Arithmetic, comparison and conversion lane by lane, with one meaning on every instruction set, bit for bit.

Nothing contracts or reassociates; a fused multiply-add happens where `fma` is written and nowhere else.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.simd.core import (
    F32,
    I32,
    WIDTHS,
    Op,
    Width,
    as_lanes,
    call,
    const,
    f32,
    f32x8,
    i32x8,
    i64,
    mask8,
    op,
    splat,
    suffix,
)


def _splat_f32(width: Width) -> Op:
    @op(width.f32, f32, name=f"splat_f32x{width.n}")
    def emit(b: ir.IRBuilder, x: Any) -> Any:
        """The same float32 in every lane."""
        return splat(b, x, width.f32.llvm)

    return emit


def _splat_i32(width: Width) -> Op:
    @op(width.i32, i64, name=f"splat_i32x{width.n}")
    def emit(b: ir.IRBuilder, x: Any) -> Any:
        """The low 32 bits of x in every lane."""
        return splat(b, b.trunc(x, I32), width.i32.llvm)

    return emit


splat_f32x8, splat_f32x16 = map(_splat_f32, WIDTHS)
splat_i32x8, splat_i32x16 = map(_splat_i32, WIDTHS)


@op(f32x8, f32x8, f32x8, operators=[operator.add], both_widths=True)
def add(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x + y."""
    return b.fadd(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.sub], both_widths=True)
def subtract(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x - y."""
    return b.fsub(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.mul], both_widths=True)
def multiply(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x * y."""
    return b.fmul(x, y)


@op(f32x8, f32x8, f32x8, operators=[operator.truediv], both_widths=True)
def divide(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x / y, correctly rounded."""
    return b.fdiv(x, y)


@op(f32x8, f32x8, operators=[operator.neg], both_widths=True)
def negate(b: ir.IRBuilder, x: Any) -> Any:
    """-x: flips the sign bit."""
    return b.fneg(x)


@op(f32x8, f32x8, f32x8, f32x8, both_widths=True)
def fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""
    return _fma(b, x, y, z)


@op(f32x8, f32x8, f32x8, both_widths=True)
def maximum(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x > y, else y (so y where either is NaN)."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@op(f32x8, f32x8, f32x8, both_widths=True)
def minimum(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x where x < y, else y (so y where either is NaN)."""
    return b.select(b.fcmp_ordered("<", x, y), x, y)


@op(f32x8, f32x8, both_widths=True)
def absolute(b: ir.IRBuilder, x: Any) -> Any:
    """Clears the sign bit."""
    return call(b, f"llvm.fabs.{suffix(x.type)}", x.type, x)


@op(f32x8, f32x8, both_widths=True)
def sqrt(b: ir.IRBuilder, x: Any) -> Any:
    """Correctly rounded square root."""
    return call(b, f"llvm.sqrt.{suffix(x.type)}", x.type, x)


@op(f32x8, f32x8, both_widths=True)
def exp(b: ir.IRBuilder, x: Any) -> Any:
    """e**x within 2 ulp; 0 below -104, infinity above 89, subnormals rounded, NaN kept.

    Cephes' expf: x = n ln2 + r with ln2 split in two, a polynomial of degree 7 in r, and 2**n in two factors
    so that the ends of the range round instead of wrapping.
    """
    floats, ints = x.type, as_lanes(x.type, I32)
    x = b.select(b.fcmp_ordered("<", x, const(floats, -110.0)), const(floats, -110.0), x)
    x = b.select(b.fcmp_ordered(">", x, const(floats, 100.0)), const(floats, 100.0), x)
    # Adding 1.5 * 2**23 rounds to an integer and leaves it in the low mantissa bits.
    magic = const(floats, 12582912.0)
    shifted = _fma(b, x, const(floats, 1.44269504088896341), magic)
    n = b.fsub(shifted, magic)
    r = _fma(b, n, const(floats, -0.693359375), x)
    r = _fma(b, n, const(floats, 2.12194440e-4), r)
    p = const(floats, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = _fma(b, p, r, const(floats, c))
    p = b.fadd(_fma(b, p, b.fmul(r, r), r), const(floats, 1.0))
    exponent = b.sub(b.bitcast(shifted, ints), b.bitcast(magic, ints))
    half = b.ashr(exponent, const(ints, 1))
    return b.fmul(b.fmul(p, _power_of_two(b, half)), _power_of_two(b, b.sub(exponent, half)))


@op(f32x8, i32x8, both_widths=True)
def power_of_two(b: ir.IRBuilder, exponent: Any) -> Any:
    """2**exponent for exponents from -126 to 127; 0 for -127."""
    return _power_of_two(b, exponent)


@op(f32x8, f32x8, both_widths=True)
def round_even(b: ir.IRBuilder, x: Any) -> Any:
    """To the nearest integer, halves to even."""
    return call(b, f"llvm.nearbyint.{suffix(x.type)}", x.type, x)


@op(i32x8, f32x8, both_widths=True)
def to_i32(b: ir.IRBuilder, x: Any) -> Any:
    """Truncate to int32; the lanes must be in range."""
    return b.fptosi(x, as_lanes(x.type, I32))


@op(f32x8, i32x8, both_widths=True)
def to_f32(b: ir.IRBuilder, x: Any) -> Any:
    """To float32, rounded half to even."""
    return b.sitofp(x, as_lanes(x.type, F32))


@op(i32x8, i32x8, i32x8, operators=[operator.add], both_widths=True)
def add_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x + y, wrapping."""
    return b.add(x, y)


@op(i32x8, i32x8, i32x8, operators=[operator.sub], both_widths=True)
def subtract_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x - y, wrapping."""
    return b.sub(x, y)


@op(i32x8, i32x8, i32x8, operators=[operator.mul], both_widths=True)
def multiply_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x * y, wrapping."""
    return b.mul(x, y)


@op(i32x8, f32x8, both_widths=True)
def magnitude_bits(b: ir.IRBuilder, x: Any) -> Any:
    """Bit patterns without the sign: ordered as the magnitudes are, infinity 0x7F800000, NaNs above."""
    return b.and_(b.bitcast(x, as_lanes(x.type, I32)), const(as_lanes(x.type, I32), 0x7FFFFFFF))


@op(i32x8, i32x8, i32x8, both_widths=True)
def maximum_i32(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The larger of signed lanes."""
    return b.select(b.icmp_signed(">", x, y), x, y)


@op(mask8, f32x8, f32x8, operators=[operator.lt], both_widths=True)
def less(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x < y; false where either is NaN."""
    return b.fcmp_ordered("<", x, y)


@op(mask8, f32x8, f32x8, operators=[operator.gt], both_widths=True)
def greater(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """x > y; false where either is NaN."""
    return b.fcmp_ordered(">", x, y)


@op(f32x8, mask8, f32x8, f32x8, both_widths=True)
def select(b: ir.IRBuilder, mask: Any, x: Any, y: Any) -> Any:
    """x where the mask is set, else y."""
    return b.select(mask, x, y)


def _fma(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    return call(b, f"llvm.fma.{suffix(x.type)}", x.type, x, y, z)


def _power_of_two(b: ir.IRBuilder, exponent: Any) -> Any:
    ints = exponent.type
    return b.bitcast(b.shl(b.add(exponent, const(ints, 127)), const(ints, 23)), as_lanes(ints, F32))
