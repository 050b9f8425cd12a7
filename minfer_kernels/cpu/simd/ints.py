"""Integer primitives for numbers as they lie in a GGUF file: bytes, bit fields, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.simd.core import (
    I8,
    I32,
    Op,
    const,
    f32x8,
    i32x8,
    i64,
    lanes,
    load,
    op,
    shuffle,
    splat,
)

_I8 = ir.VectorType(I32, 8)


@op(i32x8, i64)
def load_u8x8(b: ir.IRBuilder, p: Any) -> Any:
    """Eight unsigned bytes, widened."""
    return b.zext(load(b, p, ir.VectorType(I8, 8), 1), _I8)


@op(i32x8, i32x8, i64, i64, both_widths=True)
def bit_field(b: ir.IRBuilder, x: Any, shift: Any, mask: Any) -> Any:
    """(x >> shift) & mask, for lanes that are not negative."""
    moved = b.lshr(x, splat(b, b.trunc(shift, I32), x.type))
    return b.and_(moved, splat(b, b.trunc(mask, I32), x.type))


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


@op(i32x8, i32x8, i64, both_widths=True)
def times_power_of_two(b: ir.IRBuilder, x: Any, exponent: Any) -> Any:
    """x * 2 ** exponent, wrapping."""
    return b.shl(x, splat(b, b.trunc(exponent, I32), x.type))
