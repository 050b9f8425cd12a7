"""Across lanes: sums and maxima by one tree, (l, l + 4), then (l, l + 2), then (l, l + 1); shuffles; masks.

The tree of sixteen lanes begins with (l, l + 8), so that its halves may be added first and go on as eight lanes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.simd.core import (
    I32,
    I64,
    as_lanes,
    f32,
    f32x8,
    f32x16,
    i32x8,
    i64,
    lane,
    lanes,
    mask8,
    op,
    shuffle,
)


@op(i64, mask8, both_widths=True)
def any_lane(b: ir.IRBuilder, mask: Any) -> Any:
    """1 when some lane is set."""
    bits: Any = b.bitcast(mask, ir.IntType(mask.type.count))
    return b.zext(b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), I64)


@op(i64, mask8, both_widths=True)
def all_lanes(b: ir.IRBuilder, mask: Any) -> Any:
    """1 when every lane is set."""
    bits: Any = b.bitcast(mask, ir.IntType(mask.type.count))
    return b.zext(b.icmp_unsigned("==", bits, ir.Constant(bits.type, -1)), I64)


@op(f32x8, f32x16)
def low_half(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 0 to 7."""
    return shuffle(b, x, range(8))


@op(f32x8, f32x16)
def high_half(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 8 to 15."""
    return shuffle(b, x, range(8, 16))


@op(f32x16, f32x8, f32x8)
def join_halves(b: ir.IRBuilder, low: Any, high: Any) -> Any:
    """The lanes of `low`, then those of `high`."""
    return b.shuffle_vector(low, high, lanes(ir.VectorType(I32, 16), range(16)))


@op(f32, f32x8, both_widths=True)
def sum_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """((x0+x4)+(x2+x6)) + ((x1+x5)+(x3+x7)); of sixteen lanes, of the halves' sum."""
    for distance in _distances(x):
        x = b.fadd(x, _rotated(b, x, distance))
    return lane(b, x, 0)


@op(f32, f32x8, both_widths=True)
def max_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """The largest lane; which one of NaN lanes wins is fixed by the tree."""
    for distance in _distances(x):
        y = _rotated(b, x, distance)
        x = b.select(b.fcmp_ordered(">", x, y), x, y)
    return lane(b, x, 0)


@op(i64, i32x8, both_widths=True)
def sum_lanes_i32(b: ir.IRBuilder, x: Any) -> Any:
    """The wrapping sum of the lanes, sign-extended."""
    for distance in _distances(x):
        x = b.add(x, _rotated(b, x, distance))
    return b.sext(lane(b, x, 0), I64)


@op(f32x8, *[f32x8] * 8)
def sum_lanes_of_8(b: ir.IRBuilder, *v: Any) -> Any:
    """Lane i is `sum_lanes(v[i])`, by the same tree: eight sums for the shuffles of two or three."""
    quads = [_paired(b, v[i], v[i + 1], [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]) for i in (0, 2, 4, 6)]
    pairs = [
        _paired(b, quads[i], quads[i + 1], [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]) for i in (0, 2)
    ]
    sums = _paired(b, pairs[0], pairs[1], [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15])
    return shuffle(b, sums, [0, 4, 1, 5, 2, 6, 3, 7])


@op(f32x8, f32x8, both_widths=True)
def swap_pairs(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 1 0 3 2 5 4 7 6 and so on."""
    return shuffle(b, x, [i ^ 1 for i in range(x.type.count)])


@op(i64, i32x8, both_widths=True)
def max_lanes_i32(b: ir.IRBuilder, x: Any) -> Any:
    """The largest signed lane."""
    for distance in _distances(x):
        y = _rotated(b, x, distance)
        x = b.select(b.icmp_signed(">", x, y), x, y)
    return b.sext(lane(b, x, 0), I64)


@op(f32x8, f32x8)
def double_low_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 0 0 1 1 2 2 3 3."""
    return shuffle(b, x, [0, 0, 1, 1, 2, 2, 3, 3])


@op(f32x8, f32x8, both_widths=True)
def negate_even_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """Flips the sign of lanes 0, 2, 4 and so on."""
    ints = as_lanes(x.type, I32)
    signs = lanes(ints, [0x80000000, 0] * (ints.count // 2))
    return b.bitcast(b.xor(b.bitcast(x, ints), signs), x.type)


@op(f32, f32x8, both_widths=True)
def first_lane(b: ir.IRBuilder, x: Any) -> Any:
    """Lane 0."""
    return lane(b, x, 0)


@op(f32x8, f32x8)
def swap_halves(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 4 5 6 7 0 1 2 3."""
    return shuffle(b, x, [4, 5, 6, 7, 0, 1, 2, 3])


@op(f32x8, f32x8)
def rotate_lanes(b: ir.IRBuilder, x: Any) -> Any:
    """Lanes 1 2 3 4 5 6 7 0."""
    return _rotated(b, x, 1)


def _rotated(b: ir.IRBuilder, x: Any, distance: int) -> Any:
    count = x.type.count
    return shuffle(b, x, [(i + distance) % count for i in range(count)])


def _distances(x: Any) -> tuple[int, ...]:
    return (8, 4, 2, 1) if x.type.count == 16 else (4, 2, 1)


def _paired(b: ir.IRBuilder, x: Any, y: Any, first: list[int], second: list[int]) -> Any:
    """Lanes `first` of x and y together, plus lanes `second`."""
    order = ir.VectorType(I32, 8)
    return b.fadd(b.shuffle_vector(x, y, lanes(order, first)), b.shuffle_vector(x, y, lanes(order, second)))
