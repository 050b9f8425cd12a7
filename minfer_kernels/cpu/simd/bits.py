"""Lanes as bits of an integer, and integers by their bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.simd.core import I1, I16, I64, call, i64, mask8, mask16, op

_I128 = ir.IntType(128)


@op(i64, mask8, both_widths=True)
def lane_bits(b: ir.IRBuilder, mask: Any) -> Any:
    """Bit i for lane i."""
    return b.zext(b.bitcast(mask, ir.IntType(mask.type.count)), I64)


@op(mask16, i64)
def lanes_of_bits16(b: ir.IRBuilder, bits: Any) -> Any:
    """Lane i set where bit i is, of sixteen."""
    return b.bitcast(b.trunc(bits, I16), mask16.llvm)


@op(i64, i64)
def trailing_zeros(b: ir.IRBuilder, bits: Any) -> Any:
    """The index of the lowest bit that is set; 64 for none."""
    return call(b, "llvm.cttz.i64", I64, bits, ir.Constant(I1, 0))


@op(i64, i64)
def bits_set(b: ir.IRBuilder, bits: Any) -> Any:
    """How many bits are set."""
    return call(b, "llvm.ctpop.i64", I64, bits)


@op(i64, i64, i64)
def multiply_high(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The high 64 bits of the product, both taken as unsigned."""
    product = b.mul(b.zext(x, _I128), b.zext(y, _I128))
    return b.trunc(b.lshr(product, ir.Constant(_I128, 64)), I64)
