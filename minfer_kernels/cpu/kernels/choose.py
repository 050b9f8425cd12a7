"""Choosing one element of a row of float32 by its weight, in one call.

What comes right behind a forward finds none of its code in the caches: a call costs ten times what it does in a loop,
and so one call does everything.
"""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import F32, Int, Ptr, kernel
from minfer_kernels.cpu.kernels.penalize import add_to, put_back, record, take_off
from minfer_kernels.cpu.kernels.random import uniform_bits
from minfer_kernels.cpu.kernels.select import CHUNK, NEGATIVE_INFINITY, find_argmax, find_top_k, mass, weight
from minfer_kernels.cpu.simd import (
    inline,
    load_f32,
    load_f32x16_partial,
    load_i64,
    smaller,
    store_f32x16_partial,
    store_i64,
)

ONE = 1 << 53
UNIT = 2.0**-53
SURE = 1.0 - 1e-4
"""Sums of float32 by chunks and one by one differ by far less."""
NONE, UNKNOWN = -1, -2


@inline
def fill_weights(values: int, count: int, top: float, scale: float, out: int) -> None:
    """out float32[count]: the weight of each value."""
    for i in range(0, count, 16):
        x = load_f32x16_partial(values + 4 * i, count - i, NEGATIVE_INFINITY)
        store_f32x16_partial(out + 4 * i, count - i, weight(x, top, scale))


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
def sum_in_order(weights: int, order: int, count: int) -> float:
    """The sum of the first weights in order, one by one."""
    total = 0.0
    for j in range(count):
        total += load_f32(weights + 4 * load_i64(order + 8 * j))
    return total


@inline
def sum_of_row(row: int, n: int, mask: int, top: float) -> float:
    """The sum of the weights of all elements, by chunks."""
    total = 0.0
    for start in range(0, n, CHUNK):
        total += mass(row, start, smaller(start + CHUNK, n), mask, top, 1.0)
    return total


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
def near(values: int, order: int, count: int, lowest: float) -> int:
    """How many of the first `count` in order lie at most `lowest` from the largest; at least one."""
    top = load_f32(values + 4 * load_i64(order))
    while load_f32(values + 4 * load_i64(order + 8 * count - 8)) - top < lowest:
        count -= 1
    return count


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
def kept_of_row(
    row: int, n: int, mask: int, k: int, values: int, weights: int, order: int, count: int, share: int, lowest: float
) -> int:  # fmt: skip
    """How many of the `count` most likely, in order, are kept of the whole row; UNKNOWN where it may be more.

    Mostly those that are near enough are too few to reach the share, whatever the rest of the row weighs: then it isn't
    summed, which costs more than all the others.
    """
    close = near(values, order, count, lowest)
    if share < ONE:
        goal = share * UNIT * SURE * sum_in_order(weights, order, count)
        if close == count or sum_in_order(weights, order, close - 1) >= goal:
            total = sum_of_row(row, n, mask, load_f32(values + 4 * load_i64(order)))
            kept = nucleus(weights, order, count, share * UNIT * total)
            return UNKNOWN if kept > count and close == k else smaller(kept, close)
    return UNKNOWN if close == k else close


@inline
def chosen(
    row: int, n: int, mask: int, whole: int, k: int, capacity: int, values: int, ids: int, share: int, lowest: float,
    scale: float, uniform: float, weights: int, order: int
) -> int:  # fmt: skip
    """As `choose`, from the row as it stands."""
    if k == 1 and whole == 0:
        return find_argmax(row, n, mask)
    count = find_top_k(row, n, mask, k, capacity, values, ids)
    if count < 1:
        return NONE
    fill_order(values, count, order)
    top, kept = load_f32(values + 4 * load_i64(order)), count
    if share < ONE:
        fill_weights(values, count, top, 1.0, weights)
    if whole != 0:
        kept = kept_of_row(row, n, mask, k, values, weights, order, count, share, lowest)
        if kept == UNKNOWN:
            return UNKNOWN
    else:
        if share < ONE:
            kept = nucleus(weights, order, count, share * UNIT * sum_in_order(weights, order, count))
        kept = near(values, order, smaller(kept, count), lowest)
    fill_weights(values, count, top, scale, weights)
    return load_i64(ids + 8 * drawn(values, weights, count, load_i64(order + 8 * kept - 8), uniform))


@kernel
def choose(
    row: Ptr, n: Int, mask: Ptr, biased: Ptr, biases: Ptr, n_biased: Int, token: Int, length: Int, tokens: Ptr,
    last: Int, repeat: F32, distinct: Ptr, counts: Ptr, n_distinct: Ptr, presence: F32, frequency: F32, saved: Ptr,
    whole: Int, k: Int, capacity: Int, values: Ptr, ids: Ptr, share: Int, lowest: F32, scale: F32, seed: Int,
    step: Int, weights: Ptr, order: Ptr, out: Ptr
) -> None:  # fmt: skip
    """out int64[1]: an id drawn by weight from the k largest, the nucleus of them, those not too far below the largest.

    First the biases are added to elements `biased`, then `penalize.penalize` changes the `last` of int64[length] tokens
    and the distinct ones; in the end the row is as it was. `token`, where it isn't below 0, is the newest of them,
    which the arrays don't have yet. With `tokens` 0 none of it. saved float32[n_biased + last + n_distinct].
    `share` of the nucleus in units of 2^-53; `lowest`, at most 0, is how far a value may lie below the largest; `scale`
    multiplies values for the draw, in which ids ascend and (seed, step) give the number. weights float32[k], order
    int64[k]. Only elements whose bit in the mask is set can be chosen, where there is one.
    NONE when an element is NaN or +inf, or all are -inf. Sums are float64, one by one.
    `whole`: not the k largest are meant but all elements, by chunks; UNKNOWN when the k largest can't tell what is
    chosen.
    """
    recent, n_recent, n_counted, saved_of_tokens = 0, 0, 0, saved + 4 * n_biased
    if tokens != 0:
        if token >= 0:
            record(token, length, tokens, distinct, counts, n_distinct)
        n_recent = smaller(last, length)
        recent = tokens + 8 * (length - n_recent)
        n_counted = load_i64(n_distinct) if presence != 0 or frequency != 0 else 0
    add_to(row, biased, biases, n_biased, saved)
    take_off(row, n, recent, n_recent, repeat, distinct, counts, n_counted, presence, frequency, saved_of_tokens)
    uniform = uniform_bits(seed, step) * UNIT
    store_i64(out, chosen(row, n, mask, whole, k, capacity, values, ids, share, lowest, scale, uniform, weights, order))
    put_back(row, n, distinct, n_counted, saved_of_tokens + 4 * n_recent)
    put_back(row, n, recent, n_recent, saved_of_tokens)
    put_back(row, n, biased, n_biased, saved)
