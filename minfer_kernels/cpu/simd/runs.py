"""Runs of 32 quants of a group's rows from the bit planes of `layouts`, and their small scales.

A run is a tuple of eight vectors of bytes, one per quad (`simd.dots` says where an element stands). Signed bytes
come as the dot product of the instruction set wants them: biased by 128 where that is vpdpbusd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from minfer_kernels.cpu.simd.core import (
    I8,
    I64,
    WIDTHS,
    Isa,
    Op,
    Width,
    call,
    const,
    i64,
    lanes,
    load,
    op,
)
from minfer_kernels.cpu.simd.dots import BIAS, Dots, dots, run_type


class Runs(NamedTuple):
    """The loading primitives of one width; each takes the address of each of its planes."""

    u2: Op
    """Quants 0-3 from a plane of 2 bits."""
    u3: Op
    """Quants 0-7 from planes of 2 and 1 bits."""
    u4: Op
    """Quants 0-15 from a plane of 4 bits."""
    u5: Op
    """Quants 0-31 from planes of 4 and 1 bits."""
    u6: Op
    """Quants 0-63 from planes of 4 and 2 bits."""
    i8: Op
    """Signed bytes."""
    table: Callable[[str, Sequence[int]], Op]
    """(name, 16 signed values) to a primitive: the values that a plane of 4 bits names."""
    u8_doubled: Op
    """One unsigned byte per row, as 16 bits in lanes 2r and 2r + 1."""
    u8_pairs: Op
    """Two unsigned bytes per row, in lanes 2r and 2r + 1."""
    i8_pairs: Op
    """Two signed bytes per row."""
    low_nibbles: Op
    """(i16) to bits 0-3 of each lane."""
    high_nibbles: Op
    """(i16) to bits 4-15 of each lane, moved down."""


def runs(width: Width) -> Runs:
    """The primitives of `width`."""
    n, run = width.n, run_type(width)
    shorts, words = width.i16.llvm, width.i32.llvm
    planes = _Planes(width)

    @op(run, i64, name=f"load_u2_run{n}")
    def u2(b: ir.IRBuilder, q2: Any) -> Any:
        return planes.run(b, planes.bit_pairs(b, q2, 0))

    @op(run, i64, i64, name=f"load_u3_run{n}")
    def u3(b: ir.IRBuilder, q2: Any, q1: Any) -> Any:
        return planes.run(b, _joined(b, planes.bit_pairs(b, q2, 0), planes.single_bits(b, q1, 2)))

    @op(run, i64, name=f"load_u4_run{n}")
    def u4(b: ir.IRBuilder, q4: Any) -> Any:
        return planes.run(b, planes.nibbles(b, q4))

    @op(run, i64, i64, name=f"load_u5_run{n}")
    def u5(b: ir.IRBuilder, q4: Any, q1: Any) -> Any:
        return planes.run(b, _joined(b, planes.nibbles(b, q4), planes.single_bits(b, q1, 4)))

    @op(run, i64, i64, name=f"load_u6_run{n}")
    def u6(b: ir.IRBuilder, q4: Any, q2: Any) -> Any:
        return planes.run(b, _joined(b, planes.nibbles(b, q4), planes.bit_pairs(b, q2, 4)))

    @op(run, i64, name=f"load_i8_run{n}")
    def i8(b: ir.IRBuilder, q8: Any) -> Any:
        return planes.run(b, [planes.bytes_at(b, q8, g) for g in range(8)])

    @i8.variant(Isa.AVX512_VNNI)
    def i8_biased(b: ir.IRBuilder, q8: Any) -> Any:
        bias = const(planes.bytes, BIAS)
        return planes.run(b, [b.xor(planes.bytes_at(b, q8, g), bias) for g in range(8)])

    def table(name: str, values: Sequence[int]) -> Op:
        def with_look_up(look_up: Callable[..., Any], values: Sequence[int]) -> Callable[..., Any]:
            return lambda b, q4: planes.run(b, [look_up(b, values, index) for index in planes.nibbles(b, q4)])

        primitive = op(run, i64, name=f"{name}{n}")(with_look_up(_look_up_portable, values))
        primitive.variant(Isa.AVX2)(with_look_up(_look_up_avx2, values))
        primitive.variant(Isa.AVX512_VNNI)(with_look_up(_look_up_avx512, [v + BIAS for v in values]))
        return primitive

    @op(width.i16, i64, name=f"load_u8_doubled{n}")
    def u8_doubled(b: ir.IRBuilder, p: Any) -> Any:
        wide = b.zext(load(b, p, width.of(I8), 1), words)
        return b.bitcast(b.or_(wide, b.shl(wide, const(words, 16))), shorts)

    @op(width.i16, i64, name=f"load_u8_pairs{n}")
    def u8_pairs(b: ir.IRBuilder, p: Any) -> Any:
        return b.zext(load(b, p, ir.VectorType(I8, 2 * n), 1), shorts)

    @op(width.i16, i64, name=f"load_i8_pairs{n}")
    def i8_pairs(b: ir.IRBuilder, p: Any) -> Any:
        return b.sext(load(b, p, ir.VectorType(I8, 2 * n), 1), shorts)

    @op(width.i16, width.i16, name=f"low_nibbles{n}")
    def low_nibbles(b: ir.IRBuilder, x: Any) -> Any:
        return b.and_(x, const(shorts, 15))

    @op(width.i16, width.i16, name=f"high_nibbles{n}")
    def high_nibbles(b: ir.IRBuilder, x: Any) -> Any:
        return b.lshr(x, const(shorts, 4))

    return Runs(u2, u3, u4, u5, u6, i8, table, u8_doubled, u8_pairs, i8_pairs, low_nibbles, high_nibbles)


class _Planes:
    """Reading one width's planes: lists of eight vectors, one per quad."""

    def __init__(self, width: Width) -> None:
        self.bytes = width.i8.llvm
        self._shorts = width.i16.llvm
        self._run = ir.ArrayType(self.bytes, 8)

    def run(self, b: ir.IRBuilder, quads: Sequence[Any]) -> Any:
        packed: Any = ir.Constant(self._run, ir.Undefined)
        for g, quad in enumerate(quads):
            packed = b.insert_value(packed, quad, g)
        return packed

    def bytes_at(self, b: ir.IRBuilder, p: Any, index: int) -> Any:
        return load(b, b.add(p, ir.Constant(I64, self.bytes.count * index)), self.bytes, 1)

    def nibbles(self, b: ir.IRBuilder, p: Any) -> list[Any]:
        units = [self.bytes_at(b, p, u) for u in range(4)]
        return [self._moved(b, units[g % 4], 4 * (g // 4), 0, 15) for g in range(8)]

    def bit_pairs(self, b: ir.IRBuilder, p: Any, target: int) -> list[Any]:
        units = [self.bytes_at(b, p, u) for u in range(2)]
        return [self._moved(b, units[g // 4], 2 * (g % 4), target, 3) for g in range(8)]

    def single_bits(self, b: ir.IRBuilder, p: Any, target: int) -> list[Any]:
        unit = self.bytes_at(b, p, 0)
        return [self._moved(b, unit, g, target, 1) for g in range(8)]

    def _moved(self, b: ir.IRBuilder, x: Any, source: int, target: int, mask: int) -> Any:
        """The bits of every byte that `mask << source` selects, moved to bit `target`."""
        words, distance = b.bitcast(x, self._shorts), target - source
        if distance > 0:
            words = b.shl(words, const(self._shorts, distance))
        elif distance < 0:
            words = b.lshr(words, const(self._shorts, -distance))
        return b.and_(b.bitcast(words, self.bytes), const(self.bytes, mask << target))


def _joined(b: ir.IRBuilder, low: Sequence[Any], high: Sequence[Any]) -> list[Any]:
    return [b.or_(x, y) for x, y in zip(low, high, strict=True)]


def _look_up_portable(b: ir.IRBuilder, values: Sequence[int], index: Any) -> Any:
    found: Any = const(index.type, values[0])
    for i, value in enumerate(values[1:], 1):
        found = b.select(b.icmp_unsigned("==", index, const(index.type, i)), const(index.type, value), found)
    return found


def _look_up_avx2(b: ir.IRBuilder, values: Sequence[int], index: Any) -> Any:
    if index.type.count != 32:
        return _look_up_portable(b, values, index)
    return call(b, "llvm.x86.avx2.pshuf.b", index.type, lanes(index.type, [*values] * 2), index)


def _look_up_avx512(b: ir.IRBuilder, values: Sequence[int], index: Any) -> Any:
    if index.type.count != 64:
        return _look_up_avx2(b, values, index)
    return call(b, "llvm.x86.avx512.pshuf.b.512", index.type, lanes(index.type, [*values] * 4), index)


DOTS: dict[int, Dots] = {width.n: dots(width) for width in WIDTHS}
"""By rows of a group."""
RUNS: dict[int, Runs] = {width.n: runs(width) for width in WIDTHS}
"""By rows of a group."""
