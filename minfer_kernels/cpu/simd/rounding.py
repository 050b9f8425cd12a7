"""What encoders round with: float16 scalars, bfloat16 vectors, integers as ggml gets them; and lanes as bits."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.simd.core import (
    F16,
    F32,
    I16,
    I32,
    I64,
    Op,
    as_lanes,
    const,
    f32,
    f32x8,
    f32x16,
    i64,
    lane,
    mask8,
    op,
    splat,
    store,
    void,
)
from minfer_kernels.cpu.simd.memory import narrow_f16, widen_f16

_ROUNDER = 12582912.0
"""1.5 * 2**23: a float beside it has an integer in its low bits."""
_ONE_I16 = ir.VectorType(I16, 8)
_F32X8 = ir.VectorType(F32, 8)


@op(i64, f32)
def f16_of_f32(b: ir.IRBuilder, x: Any) -> Any:
    """The bits of x as float16, rounded half to even; overflow becomes infinity."""
    return b.zext(lane(b, narrow_f16(b, splat(b, x, _F32X8)), 0), I64)


@f16_of_f32.variant(Isa.AVX2)
def _f16_of_f32_f16c(b: ir.IRBuilder, x: Any) -> Any:
    return b.zext(b.bitcast(b.fptrunc(x, F16), I16), I64)


@op(f32, i64)
def f32_of_f16(b: ir.IRBuilder, bits: Any) -> Any:
    """The value of the float16 with the low 16 bits."""
    return lane(b, widen_f16(b, splat(b, b.trunc(bits, I16), _ONE_I16)), 0)


@f32_of_f16.variant(Isa.AVX2)
def _f32_of_f16_f16c(b: ir.IRBuilder, bits: Any) -> Any:
    return b.fpext(b.bitcast(b.trunc(bits, I16), F16), F32)


@op(void, i64, f32x16)
def store_bf16x16(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store the lanes, which are finite, as bfloat16, rounded half to even."""
    ints = as_lanes(x.type, I32)
    bits = b.bitcast(x, ints)
    odd = b.and_(b.lshr(bits, const(ints, 16)), const(ints, 1))
    rounded = b.lshr(b.add(bits, b.add(odd, const(ints, 0x7FFF))), const(ints, 16))
    store(b, p, b.trunc(rounded, as_lanes(ints, I16)), 2)


@op(f32x8, f32x8, both_widths=True)
def round_as_ggml(b: ir.IRBuilder, x: Any) -> Any:
    """The low bits of x + 1.5 * 2**23 as an integer: the nearest one, halves to even, while x is below 2**22."""
    ints = as_lanes(x.type, I32)
    bits = b.bitcast(b.fadd(x, const(x.type, _ROUNDER)), ints)
    whole = b.sub(b.and_(bits, const(ints, 0x7FFFFF)), const(ints, 0x400000))
    return b.sitofp(whole, x.type)


@op(mask8, mask8, mask8, operators=[operator.and_], both_widths=True)
def both(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """Lanes that are set in both."""
    return b.and_(x, y)


@op(i64, mask8, both_widths=True)
def mask_bits(b: ir.IRBuilder, mask: Any) -> Any:
    """Bit l is lane l."""
    return b.zext(b.bitcast(mask, ir.IntType(mask.type.count)), I64)


@op(mask8, f32x8, both_widths=True)
def signed_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes whose sign bit is set, that of -0.0 too."""
    ints = as_lanes(x.type, I32)
    return b.icmp_signed("<", b.bitcast(x, ints), const(ints, 0))


def stairs_of(name: str, first: float, starts: Sequence[float], heights: Sequence[float]) -> Op:
    """A primitive (floats) to `first` plus the `heights` of all steps that start at or below each lane."""

    def emit(b: ir.IRBuilder, x: Any) -> Any:
        found: Any = const(x.type, first)
        for start, height in zip(starts, heights, strict=True):
            reached = b.fcmp_ordered(">=", x, const(x.type, start))
            found = b.select(reached, b.fadd(found, const(x.type, height)), found)
        return found

    return op(f32x8, f32x8, both_widths=True, name=name)(emit)
