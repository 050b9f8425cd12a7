"""The largest of one row of float32: what a sampler needs of the logits.

Logits are compared as numbers: -0.0 equals 0.0, and at equal logits the lower id comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer_kernels.cpu.compiler.kernel import Int, Ptr, kernel
from minfer_kernels.cpu.simd import (
    any_lane,
    f32_of_bits,
    greater,
    inline,
    larger_f32,
    load_f32,
    load_f32x8,
    load_f32x8_partial,
    load_i64,
    magnitude_bits,
    max_lanes,
    max_lanes_i32,
    maximum,
    maximum_i32,
    select,
    smaller,
    splat_f32x8,
    splat_i32x8,
    store_f32,
    store_i64,
    sum_lanes_i32,
    to_i32,
)

CHUNK = 64
"""Elements that are looked at together: a chunk without a large one costs eight loads and a compare."""
NEGATIVE_INFINITY = float(-np.inf)
INFINITY_RANK = 0x7F800000
NEGATIVE_INFINITY_RANK = -INFINITY_RANK - 1


@inline
def look_at(row: int, start: int, end: int, largest: Any) -> Any:
    """(the largest of elements [start, end), the lane-wise largest magnitude so far): a NaN shows in the second."""
    top = splat_f32x8(NEGATIVE_INFINITY)
    if end - start == CHUNK:
        for i in range(start, start + CHUNK, 8):
            x = load_f32x8(row + 4 * i)
            top, largest = maximum(x, top), maximum_i32(magnitude_bits(x), largest)
        return max_lanes(top), largest
    for i in range(start, end, 8):
        x = load_f32x8_partial(row + 4 * i, end - i, NEGATIVE_INFINITY)
        top, largest = maximum(x, top), maximum_i32(magnitude_bits(x), largest)
    return max_lanes(top), largest


@inline
def of_rank(rank: int) -> float:
    """The float32 with this rank: its bits as an integer, those of negative numbers mirrored below 0."""
    return f32_of_bits(rank if rank >= 0 else -rank - 1 | 0x80000000)


@inline
def count_above(values: int, count: int, limit: float) -> int:
    """How many of the values are above `limit`."""
    ones, zeros, limits = splat_f32x8(1.0), splat_f32x8(0.0), splat_f32x8(limit)
    total = zeros
    for i in range(0, count, 8):
        x = load_f32x8_partial(values + 4 * i, count - i, NEGATIVE_INFINITY)
        total += select(greater(x, limits), ones, zeros)
    return sum_lanes_i32(to_i32(total))


@inline
def append_above(row: int, start: int, end: int, floor: float, values: int, ids: int, count: int) -> int:
    """Append the elements [start, end) above `floor` behind the `count` that are there; returns how many are now."""
    for i in range(start, end):
        x = load_f32(row + 4 * i)
        if x > floor:
            store_f32(values + 4 * count, x)
            store_i64(ids + 8 * count, i)
            count += 1
    return count


@inline
def keep_largest(values: int, ids: int, count: int, k: int) -> float:
    """Keep the k largest of `count` values, in their order; returns the smallest that was kept.

    It is found by halving the range of float32: 32 counts over the few values that there are.
    """
    low, high = NEGATIVE_INFINITY_RANK, INFINITY_RANK
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


@kernel
def argmax(row: Ptr, n: Int, out: Ptr) -> None:
    """out int64[1]: the lowest id of the largest of `n` elements; -1 when one is NaN or +inf, or all are -inf."""
    best, at = of_rank(NEGATIVE_INFINITY_RANK), -1
    largest = splat_i32x8(0)
    for start in range(0, n, CHUNK):
        end = smaller(start + CHUNK, n)
        top, largest = look_at(row, start, end, largest)
        if top > best:
            best, at = top, start
    if max_lanes_i32(largest) > INFINITY_RANK or at < 0 or best == of_rank(INFINITY_RANK):
        store_i64(out, -1)
        return
    while load_f32(row + 4 * at) != best:
        at += 1
    store_i64(out, at)


@kernel
def top_k(row: Ptr, n: Int, k: Int, capacity: Int, values: Ptr, ids: Ptr, out: Ptr) -> None:
    """The k largest of `n` elements above -inf, ids ascending; at the last places the lowest ids of those that tie.

    values float32[capacity], ids int64[capacity]; capacity a multiple of 8, at least k + 8.
    out int64[1]: how many there are, up to k; -1 when an element is NaN or +inf.
    """
    count, floor = 0, of_rank(NEGATIVE_INFINITY_RANK)
    best = floor
    largest = splat_i32x8(0)
    for start in range(0, n, CHUNK):
        end = smaller(start + CHUNK, n)
        top, largest = look_at(row, start, end, largest)
        best = larger_f32(top, best)
        for i in range(start, end if top > floor else start, 8):
            x = load_f32x8_partial(row + 4 * i, end - i, NEGATIVE_INFINITY)
            if any_lane(greater(x, splat_f32x8(floor))):
                count = append_above(row, i, smaller(i + 8, end), floor, values, ids, count)
            if count > capacity - 8:
                floor = keep_largest(values, ids, count, k)
                count = k
    if count > k:
        keep_largest(values, ids, count, k)
        count = k
    store_i64(out, -1 if max_lanes_i32(largest) > INFINITY_RANK or best == of_rank(INFINITY_RANK) else count)
