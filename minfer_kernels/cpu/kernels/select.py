"""The largest of one row of float32: what a sampler needs of the logits.

Logits are compared as numbers: -0.0 equals 0.0, and at equal logits the lower id comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer_kernels.cpu.compiler.kernel import F32, Int, Ptr, kernel
from minfer_kernels.cpu.simd import (
    any_lane,
    bits_of_f32,
    f32_of_bits,
    greater,
    high_half,
    inline,
    larger,
    load_f32,
    load_f32x16,
    load_f32x16_partial,
    load_i64,
    load_u8,
    load_u16,
    low_half,
    magnitude_bits,
    max_lanes,
    max_lanes_i32,
    maximum,
    maximum_i32,
    power_of_two,
    round_even,
    select,
    smaller,
    splat_f32x8,
    splat_f32x16,
    splat_i32x16,
    store_f32,
    store_f32x16,
    store_f32x16_partial,
    store_i64,
    sum_lanes,
    to_i32,
)
from minfer_kernels.cpu.simd.bits import bits_set, lane_bits, lanes_of_bits16, trailing_zeros

CHUNK = 64
"""Elements that are looked at together: a chunk without a large one costs four loads and a compare."""
NEGATIVE_INFINITY = float(-np.inf)
INFINITY_RANK = 0x7F800000
NEGATIVE_INFINITY_RANK = -INFINITY_RANK - 1


@inline
def bars(mask: int, i: int) -> Any:
    """-inf in the lanes of elements i to i + 15 whose bit (i % 8 of byte i // 8) is not set, 0 in the others."""
    bits = lanes_of_bits16(load_u16(mask + i // 8))
    return select(bits, splat_f32x16(0.0), splat_f32x16(NEGATIVE_INFINITY))


@inline
def look_at(row: int, start: int, end: int, mask: int, largest: Any) -> Any:
    """(lane-wise the largest of elements [start, end), and the largest magnitude so far): a NaN shows in the second.

    With a mask, 0 for none, elements without a bit count as -inf, and +inf there as NaN.
    """
    top = splat_f32x16(NEGATIVE_INFINITY)
    if end - start == CHUNK and mask == 0:
        for i in range(start, start + CHUNK, 16):
            x = load_f32x16(row + 4 * i)
            top, largest = maximum(x, top), maximum_i32(magnitude_bits(x), largest)
        return top, largest
    for i in range(start, end, 16):
        x = load_f32x16_partial(row + 4 * i, end - i, NEGATIVE_INFINITY)
        if mask != 0:
            x = x + bars(mask, i)
        top, largest = maximum(x, top), maximum_i32(magnitude_bits(x), largest)
    return top, largest


@inline
def let_through(mask: int, i: int) -> bool:
    """Whether element i may be chosen."""
    return mask == 0 or (load_u8(mask + i // 8) >> (i % 8)) & 1 == 1


@inline
def of_rank(rank: int) -> float:
    """The float32 with this rank: its bits as an integer, those of negative numbers mirrored below 0."""
    return f32_of_bits(rank if rank >= 0 else -rank - 1 | 0x80000000)


@inline
def rank_below(x: float) -> int:
    """A rank of a number below x, or -inf's."""
    bits = bits_of_f32(x)
    rank = bits if bits < 0x80000000 else 0x7FFFFFFF - bits
    # two, because 0.0 and -0.0 are one number
    return larger(rank - 2, NEGATIVE_INFINITY_RANK)


@inline
def count_above(values: int, count: int, limit: float) -> int:
    """How many of the values are above `limit`."""
    limits, total = splat_f32x16(limit), 0
    for i in range(0, count, 16):
        x = load_f32x16_partial(values + 4 * i, count - i, NEGATIVE_INFINITY)
        total += bits_set(lane_bits(greater(x, limits)))
    return total


@inline
def append_above(
    row: int, start: int, end: int, mask: int, floor: float, values: int, ids: int, count: int
) -> int:  # fmt: skip
    """Append the elements [start, end) above `floor` behind the `count` that are there; returns how many are now."""
    floors = splat_f32x16(floor)
    for i in range(start, end, 16):
        x = load_f32x16_partial(row + 4 * i, end - i, NEGATIVE_INFINITY)
        if mask != 0:
            x = x + bars(mask, i)
        bits = lane_bits(greater(x, floors))
        while bits != 0:
            at = i + trailing_zeros(bits)
            store_f32(values + 4 * count, load_f32(row + 4 * at))
            store_i64(ids + 8 * count, at)
            count += 1
            bits &= bits - 1
    return count


@inline
def keep_largest(values: int, ids: int, count: int, k: int, floor: float) -> float:
    """Keep the k largest of `count` values, at least `floor`, in their order; returns the smallest that was kept.

    It is found by halving the range of float32: up to 32 counts over the few values that there are.
    """
    low, high = rank_below(floor), INFINITY_RANK
    while high - low > 1:
        middle = (low + high) >> 1
        if count_above(values, count, of_rank(middle)) >= k:
            low = middle
        else:
            high = middle
    smallest = of_rank(high)
    ties = k - count_above(values, count, smallest)
    kept = 0
    for i in range(count):
        x = load_f32(values + 4 * i)
        tied = x == smallest
        if x > smallest or (tied and ties > 0):
            ties -= tied
            store_f32(values + 4 * kept, x)
            store_i64(ids + 8 * kept, load_i64(ids + 8 * i))
            kept += 1
    return smallest


@inline
def find_argmax(row: int, n: int, mask: int) -> int:
    """As `argmax`."""
    best, at = of_rank(NEGATIVE_INFINITY_RANK), -1
    largest = splat_i32x16(0)
    for start in range(0, n, CHUNK):
        tops, largest = look_at(row, start, smaller(start + CHUNK, n), mask, largest)
        if any_lane(greater(tops, splat_f32x16(best))):
            best, at = max_lanes(tops), start
    if max_lanes_i32(largest) > INFINITY_RANK or at < 0 or best == of_rank(INFINITY_RANK):
        return -1
    while load_f32(row + 4 * at) != best or not let_through(mask, at):
        at += 1
    return at


@inline
def find_top_k(row: int, n: int, mask: int, k: int, capacity: int, values: int, ids: int) -> int:
    """As `top_k`; returns how many there are."""
    count, floor = 0, of_rank(NEGATIVE_INFINITY_RANK)
    best, largest = splat_f32x16(NEGATIVE_INFINITY), splat_i32x16(0)
    for start in range(0, n, CHUNK):
        end = smaller(start + CHUNK, n)
        tops, largest = look_at(row, start, end, mask, largest)
        best = maximum(tops, best)
        if any_lane(greater(tops, splat_f32x16(floor))):
            count = append_above(row, start, end, mask, floor, values, ids, count)
            if count > capacity - CHUNK:
                floor = keep_largest(values, ids, count, k, floor)
                count = k
    if count > k:
        keep_largest(values, ids, count, k, floor)
        count = k
    return -1 if max_lanes_i32(largest) > INFINITY_RANK or max_lanes(best) == of_rank(INFINITY_RANK) else count


@kernel
def argmax(row: Ptr, n: Int, mask: Ptr, out: Ptr) -> None:
    """out int64[1]: the lowest id of the largest of `n` elements; -1 when one is NaN or +inf, or all are -inf.

    Of those alone whose bit in the mask is set, where there is one.
    """
    store_i64(out, find_argmax(row, n, mask))


@kernel
def top_k(row: Ptr, n: Int, k: Int, capacity: Int, values: Ptr, ids: Ptr, out: Ptr) -> None:
    """The k largest of `n` elements above -inf, ids ascending; at the last places the lowest ids of those that tie.

    values float32[capacity], ids int64[capacity]; capacity at least k + CHUNK.
    out int64[1]: how many there are, up to k; -1 when an element is NaN or +inf.
    """
    store_i64(out, find_top_k(row, n, 0, k, capacity, values, ids))


@kernel
def above(row: Ptr, n: Int, floor: F32, values: Ptr, ids: Ptr, out: Ptr) -> None:
    """The elements above `floor`, ids ascending: values float32[n], ids int64[n], out int64[1] how many there are."""
    store_i64(out, append_above(row, 0, n, 0, floor, values, ids, 0))


@inline
def weight(x: Any, top: float, scale: float) -> Any:
    """exp((x - top) * scale) of sixteen lanes, 0 below e^-88: Cephes' expf, every product and sum rounded.

    Nothing is fused, so that numpy, which has no fused multiply-add, can have the same bits.
    """
    d = maximum((x - splat_f32x16(top)) * splat_f32x16(scale), splat_f32x16(-88.0))
    power = round_even(d * splat_f32x16(1.44269504088896341))
    r = d - power * splat_f32x16(0.693359375)
    r = r - power * splat_f32x16(-2.12194440e-4)
    p = splat_f32x16(1.9875691500e-4) * r + splat_f32x16(1.3981999507e-3)
    p = p * r + splat_f32x16(8.3334519073e-3)
    p = p * r + splat_f32x16(4.1665795894e-2)
    p = p * r + splat_f32x16(1.6666665459e-1)
    p = p * r + splat_f32x16(5.0000001201e-1)
    p = p * (r * r) + r + splat_f32x16(1.0)
    return p * power_of_two(to_i32(power))


@inline
def mass(row: int, start: int, end: int, mask: int, top: float, scale: float) -> float:
    """The sum of the weights of elements [start, end): of eight lanes, each ascending, then by `sum_lanes`."""
    total = splat_f32x8(0.0)
    if end - start == CHUNK and mask == 0:
        for i in range(start, start + CHUNK, 16):
            weights = weight(load_f32x16(row + 4 * i), top, scale)
            total = total + low_half(weights) + high_half(weights)
        return sum_lanes(total)
    for i in range(start, end, 16):
        x = load_f32x16_partial(row + 4 * i, end - i, NEGATIVE_INFINITY)
        if mask != 0:
            x = x + bars(mask, i)
        weights = weight(x, top, scale)
        total = total + low_half(weights) + high_half(weights)
    return sum_lanes(total)


@kernel
def masses(row: Ptr, n: Int, top: F32, scale: F32, out: Ptr) -> None:
    """out float32[ceil(n / CHUNK)]: the sum of each chunk's weights."""
    for start in range(0, n, CHUNK):
        store_f32(out + 4 * (start // CHUNK), mass(row, start, smaller(start + CHUNK, n), 0, top, scale))


@kernel
def masked(row: Ptr, n: Int, mask: Ptr, out: Ptr) -> None:
    """out float32[n]: the row, with -inf added where bit i % 8 of the mask's byte i // 8 is not set.

    NaN stays, and +inf becomes NaN: an element that can't be chosen shows what is wrong with it.
    """
    for i in range(0, n - 15, 16):
        store_f32x16(out + 4 * i, load_f32x16(row + 4 * i) + bars(mask, i))
    rest = n % 16
    if rest > 0:
        at = n - rest
        x = load_f32x16_partial(row + 4 * at, rest, 0.0) + bars(mask, at)
        store_f32x16_partial(out + 4 * at, rest, x)
