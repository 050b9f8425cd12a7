"""The largest of one row of float32: what a sampler needs of the logits.

Logits are compared as numbers: -0.0 equals 0.0, and at equal logits the lower id comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer_kernels.cpu.compiler.kernel import F32, Int, Ptr, kernel
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
    load_u8,
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
    splat_i32x8,
    store_f32,
    store_f32x8,
    store_f32x8_partial,
    store_i64,
    sum_lanes,
    sum_lanes_i32,
    to_f32,
    to_i32,
)
from minfer_kernels.cpu.simd.ints import bits_of_byte

CHUNK = 64
"""Elements that are looked at together: a chunk without a large one costs eight loads and a compare."""
ONE = 1 << 53
UNIT = 2.0**-53
NEGATIVE_INFINITY = float(-np.inf)
INFINITY_RANK = 0x7F800000
NEGATIVE_INFINITY_RANK = -INFINITY_RANK - 1


@inline
def bars(mask: int, i: int) -> Any:
    """-inf in the lanes of elements i to i + 7 whose bit (i % 8 of byte i // 8) is not set, 0 in the others."""
    bits = to_f32(bits_of_byte(load_u8(mask + i // 8)))
    return select(greater(bits, splat_f32x8(0.0)), splat_f32x8(0.0), splat_f32x8(NEGATIVE_INFINITY))


@inline
def look_at(row: int, start: int, end: int, mask: int, largest: Any) -> Any:
    """(the largest of elements [start, end), the lane-wise largest magnitude so far): a NaN shows in the second.

    With a mask, 0 for none, elements without a bit count as -inf, and +inf there as NaN.
    """
    top = splat_f32x8(NEGATIVE_INFINITY)
    if end - start == CHUNK:
        if mask == 0:
            for i in range(start, start + CHUNK, 8):
                x = load_f32x8(row + 4 * i)
                top, largest = maximum(x, top), maximum_i32(magnitude_bits(x), largest)
            return max_lanes(top), largest
        for i in range(start, start + CHUNK, 8):
            x = load_f32x8(row + 4 * i) + bars(mask, i)
            top, largest = maximum(x, top), maximum_i32(magnitude_bits(x), largest)
        return max_lanes(top), largest
    for i in range(start, end, 8):
        x = load_f32x8_partial(row + 4 * i, end - i, NEGATIVE_INFINITY)
        if mask != 0:
            x = x + bars(mask, i)
        top, largest = maximum(x, top), maximum_i32(magnitude_bits(x), largest)
    return max_lanes(top), largest


@inline
def let_through(mask: int, i: int) -> bool:
    """Whether element i may be chosen."""
    return mask == 0 or (load_u8(mask + i // 8) >> (i % 8)) & 1 == 1


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
def append_above(
    row: int, start: int, end: int, mask: int, floor: float, values: int, ids: int, count: int
) -> int:  # fmt: skip
    """Append the elements [start, end) above `floor` behind the `count` that are there; returns how many are now."""
    for i in range(start, end):
        x = load_f32(row + 4 * i)
        if x > floor and let_through(mask, i):
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
def argmax(row: Ptr, n: Int, mask: Ptr, out: Ptr) -> None:
    """out int64[1]: the lowest id of the largest of `n` elements; -1 when one is NaN or +inf, or all are -inf.

    Of those alone whose bit in the mask is set, where there is one.
    """
    best, at = of_rank(NEGATIVE_INFINITY_RANK), -1
    largest = splat_i32x8(0)
    for start in range(0, n, CHUNK):
        end = smaller(start + CHUNK, n)
        top, largest = look_at(row, start, end, mask, largest)
        if top > best:
            best, at = top, start
    if max_lanes_i32(largest) > INFINITY_RANK or at < 0 or best == of_rank(INFINITY_RANK):
        store_i64(out, -1)
        return
    while load_f32(row + 4 * at) != best or not let_through(mask, at):
        at += 1
    store_i64(out, at)


@inline
def find_top_k(row: int, n: int, mask: int, k: int, capacity: int, values: int, ids: int) -> int:
    """As `top_k`; returns how many there are."""
    count, floor = 0, of_rank(NEGATIVE_INFINITY_RANK)
    best = floor
    largest = splat_i32x8(0)
    for start in range(0, n, CHUNK):
        end = smaller(start + CHUNK, n)
        top, largest = look_at(row, start, end, mask, largest)
        best = larger_f32(top, best)
        for i in range(start, end if top > floor else start, 8):
            x = load_f32x8_partial(row + 4 * i, end - i, NEGATIVE_INFINITY)
            if any_lane(greater(x, splat_f32x8(floor))):
                count = append_above(row, i, smaller(i + 8, end), mask, floor, values, ids, count)
            if count > capacity - 8:
                floor = keep_largest(values, ids, count, k)
                count = k
    if count > k:
        keep_largest(values, ids, count, k)
        count = k
    return -1 if max_lanes_i32(largest) > INFINITY_RANK or best == of_rank(INFINITY_RANK) else count


@kernel
def top_k(row: Ptr, n: Int, k: Int, capacity: Int, values: Ptr, ids: Ptr, out: Ptr) -> None:
    """The k largest of `n` elements above -inf, ids ascending; at the last places the lowest ids of those that tie.

    values float32[capacity], ids int64[capacity]; capacity a multiple of 8, at least k + 8.
    out int64[1]: how many there are, up to k; -1 when an element is NaN or +inf.
    """
    store_i64(out, find_top_k(row, n, 0, k, capacity, values, ids))


@kernel
def above(row: Ptr, n: Int, floor: F32, values: Ptr, ids: Ptr, out: Ptr) -> None:
    """The elements above `floor`, ids ascending: values float32[n], ids int64[n], out int64[1] how many there are."""
    count, floors = 0, splat_f32x8(floor)
    for start in range(0, n, CHUNK):
        end = smaller(start + CHUNK, n)
        for i in range(start, end - 7, 8):
            if any_lane(greater(load_f32x8(row + 4 * i), floors)):
                count = append_above(row, i, i + 8, 0, floor, values, ids, count)
        count = append_above(row, end - (end - start) % 8, end, 0, floor, values, ids, count)
    store_i64(out, count)


@inline
def weight(x: Any, top: Any, scale: Any) -> Any:
    """exp((x - top) * scale) lane by lane, 0 below e^-88: Cephes' expf, every product and sum rounded.

    Nothing is fused, so that numpy, which has no fused multiply-add, can have the same bits.
    """
    d = maximum((x - top) * scale, splat_f32x8(-88.0))
    power = round_even(d * splat_f32x8(1.44269504088896341))
    r = d - power * splat_f32x8(0.693359375)
    r = r - power * splat_f32x8(-2.12194440e-4)
    p = splat_f32x8(1.9875691500e-4) * r + splat_f32x8(1.3981999507e-3)
    p = p * r + splat_f32x8(8.3334519073e-3)
    p = p * r + splat_f32x8(4.1665795894e-2)
    p = p * r + splat_f32x8(1.6666665459e-1)
    p = p * r + splat_f32x8(5.0000001201e-1)
    p = p * (r * r) + r + splat_f32x8(1.0)
    return p * power_of_two(to_i32(power))


@inline
def mass(row: int, start: int, end: int, mask: int, top: float, scale: float) -> float:
    """The sum of the weights of elements [start, end), lane by lane ascending, then by `sum_lanes`."""
    tops, scales, total = splat_f32x8(top), splat_f32x8(scale), splat_f32x8(0.0)
    for i in range(start, end - 7, 8):
        x = load_f32x8(row + 4 * i)
        if mask != 0:
            x = x + bars(mask, i)
        total += weight(x, tops, scales)
    rest = (end - start) % 8
    if rest > 0:
        x = load_f32x8_partial(row + 4 * (end - rest), rest, NEGATIVE_INFINITY)
        if mask != 0:
            x = x + bars(mask, end - rest)
        total += weight(x, tops, scales)
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
    for i in range(0, n - 7, 8):
        store_f32x8(out + 4 * i, load_f32x8(row + 4 * i) + bars(mask, i))
    rest = n % 8
    if rest > 0:
        at = n - rest
        x = load_f32x8_partial(row + 4 * at, rest, 0.0) + bars(mask, at)
        store_f32x8_partial(out + 4 * at, rest, x)


@inline
def fill_weights(values: int, count: int, top: float, scale: float, out: int) -> None:
    """out float32[count]: the weight of each value."""
    for i in range(0, count, 8):
        x = load_f32x8_partial(values + 4 * i, count - i, NEGATIVE_INFINITY)
        store_f32x8_partial(out + 4 * i, count - i, weight(x, splat_f32x8(top), splat_f32x8(scale)))


@inline
def fill_order(values: int, count: int, order: int) -> None:
    """order int64[count]: indices of the values, largest first, lower ones first where values are equal."""
    for i in range(count):
        x, at = load_f32(values + 4 * i), i
        while at > 0 and load_f32(values + 4 * load_i64(order + 8 * at - 8)) < x:
            store_i64(order + 8 * at, load_i64(order + 8 * at - 8))
            at -= 1
        store_i64(order + 8 * at, i)


@inline
def nucleus(weights: int, order: int, count: int, goal: float) -> int:
    """How many of the first in order it takes until their weights reach the goal; count + 1 when all don't."""
    reached = 0.0
    for j in range(count):
        reached += load_f32(weights + 4 * load_i64(order + 8 * j))
        if reached >= goal:
            return j + 1
    return count + 1


@inline
def kept_weight(values: int, weights: int, i: int, limit: float, last: int) -> float:
    """The weight of value i; 0 behind the value `limit` at index `last` in their order."""
    x = load_f32(values + 4 * i)
    return load_f32(weights + 4 * i) if x > limit or (x == limit and i <= last) else 0.0


@inline
def drawn(values: int, weights: int, count: int, last: int, uniform: float) -> int:
    """The index, ascending, on which the number falls by weight, of those up to index `last` in their order."""
    limit, total, reached = load_f32(values + 4 * last), 0.0, 0.0
    for i in range(count):
        total += kept_weight(values, weights, i, limit, last)
    for i in range(count):
        reached += kept_weight(values, weights, i, limit, last)
        if reached > uniform * total:
            return i
    return last


@inline
def sum_of(row: int, n: int, mask: int, whole: int, top: float, weights: int, order: int, count: int) -> float:
    """The sum of the weights of the whole row, by chunks, or of the `count` in order."""
    total = 0.0
    if whole != 0:
        for start in range(0, n, CHUNK):
            total += mass(row, start, smaller(start + CHUNK, n), mask, top, 1.0)
        return total
    for j in range(count):
        total += load_f32(weights + 4 * load_i64(order + 8 * j))
    return total


@kernel
def choose(
    row: Ptr, n: Int, mask: Ptr, whole: Int, k: Int, capacity: Int, values: Ptr, ids: Ptr, share: Int, lowest: F32,
    scale: F32, uniform: Int, weights: Ptr, order: Ptr, out: Ptr
) -> None:  # fmt: skip
    """out int64[1]: an id drawn by weight from the k largest, the nucleus of them, those not too far below the largest.

    `share` of the nucleus and the `uniform` number in units of 2^-53; `lowest`, at most 0, is how far a value may lie
    below the largest; `scale` multiplies values for the draw, in which ids ascend. weights float32[k], order int64[k].
    Only elements whose bit in the mask is set can be chosen, where there is one.
    -1 when an element is NaN or +inf, or all are -inf. Sums are float64, one by one.
    `whole`: not the k largest are meant but all elements, by chunks; -2 when the k largest can't tell what is chosen.
    """
    count = find_top_k(row, n, mask, k, capacity, values, ids)
    if count < 1:
        store_i64(out, -1)
        return
    fill_order(values, count, order)
    top, kept = load_f32(values + 4 * load_i64(order)), count + whole
    if share < ONE:
        fill_weights(values, count, top, 1.0, weights)
        total = sum_of(row, n, mask, whole, top, weights, order, count)
        kept = nucleus(weights, order, count, share * UNIT * total)
    least = load_f32(values + 4 * load_i64(order + 8 * count - 8))
    if whole != 0 and kept > count and count == k and least - top >= lowest:
        store_i64(out, -2)
        return
    kept = smaller(kept, count)
    while load_f32(values + 4 * load_i64(order + 8 * kept - 8)) - top < lowest:
        kept -= 1
    fill_weights(values, count, top, scale, weights)
    last = load_i64(order + 8 * kept - 8)
    store_i64(out, load_i64(ids + 8 * drawn(values, weights, count, last, uniform * UNIT)))


@kernel
def penalize(
    row: Ptr, n: Int, recent: Ptr, n_recent: Int, repeat: F32, distinct: Ptr, counts: Ptr, n_distinct: Int,
    presence: F32, frequency: F32, saved: Ptr
) -> None:  # fmt: skip
    """Change elements in place: those `recent` once, however often they are, then the `distinct` by their counts.

    saved float32[n_recent + n_distinct]: what was there. Ids of n or above are passed over.
    """
    for i in range(n_recent):
        at = load_i64(recent + 8 * i)
        if at < n:
            store_f32(saved + 4 * i, load_f32(row + 4 * at))
    for i in range(n_recent):
        at = load_i64(recent + 8 * i)
        if at < n:
            x = load_f32(saved + 4 * i)
            store_f32(row + 4 * at, x / repeat if x > 0 else x * repeat)
    for i in range(n_distinct):
        at, count = load_i64(distinct + 8 * i), load_i64(counts + 8 * i)
        if at < n:
            x = load_f32(row + 4 * at)
            store_f32(saved + 4 * (n_recent + i), x)
            if count > 0:
                store_f32(row + 4 * at, x - (presence + np.float32(count) * frequency))


@kernel
def restore(row: Ptr, n: Int, recent: Ptr, n_recent: Int, distinct: Ptr, n_distinct: Int, saved: Ptr) -> None:
    """Undo `penalize`."""
    for i in range(n_distinct):
        at = load_i64(distinct + 8 * i)
        if at < n:
            store_f32(row + 4 * at, load_f32(saved + 4 * (n_recent + i)))
    for i in range(n_recent):
        at = load_i64(recent + 8 * i)
        if at < n:
            store_f32(row + 4 * at, load_f32(saved + 4 * i))
