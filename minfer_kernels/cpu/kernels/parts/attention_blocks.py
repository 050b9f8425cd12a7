"""One KV block of attention for one query: scores, softmax within the block, values, and the merge.

A block is 64 logical positions. Its canonical order, whatever the threads, rows or cells:

- score of a cell: lane l multiplies and adds elements l, l + 8, ... of the head (fused, ascending), the lanes add
  by the tree of `sum_lanes`, the sum times `scale`;
- m = the largest score; weights exp(score - m); their sum by lanes l, l + 8, ... and the tree; absent cells count 0;
- values: every element a chain of fused multiply-adds over the cells, ascending, from 0;
- merge into (M, L, O): N = max(M, m), a = exp(M - N), b = exp(m - N), L = L a + l b (fused), O = O a + o b (fused).

The result is O / L.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minfer_kernels.cpu.simd import (
    exp,
    f32,
    first_lane,
    first_lanes,
    fma,
    inline,
    larger_f32,
    load_f32,
    load_f32x8,
    max_lanes,
    maximum,
    select,
    smaller,
    splat_f32x8,
    store_f32,
    store_f32x8,
    sum_lanes,
    sum_lanes_of_8,
)

NEGATIVE_INFINITY = float(-np.inf)

Loader = Callable[[int], Any]


@inline
def block_scores(
    load: Any, element: int, query: int, keys: int, stride: int, count: int, steps: int, scale: Any, scores: int
) -> Any:
    """Scores of `count` cells (at `keys`, `stride` bytes apart) to `scores`, -inf to the next multiple of 8; the max.

    `load` reads eight elements of `element` bytes; a head has `steps` vectors. Cells past `count` up to a multiple
    of 8 are read from the last one, so nothing beyond the window is touched.
    """
    nothing = splat_f32x8(NEGATIVE_INFINITY)
    largest = nothing
    for first in range(0, count, 8):
        last = count - 1
        k0 = keys + first * stride
        k1, k2 = keys + smaller(first + 1, last) * stride, keys + smaller(first + 2, last) * stride
        k3, k4 = keys + smaller(first + 3, last) * stride, keys + smaller(first + 4, last) * stride
        k5, k6 = keys + smaller(first + 5, last) * stride, keys + smaller(first + 6, last) * stride
        k7 = keys + smaller(first + 7, last) * stride
        s0 = splat_f32x8(0.0)
        s1, s2, s3, s4, s5, s6, s7 = s0, s0, s0, s0, s0, s0, s0
        for i in range(steps):
            q = load_f32x8(query + 32 * i)
            at = 8 * element * i
            s0 = fma(q, load(k0 + at), s0)
            s1 = fma(q, load(k1 + at), s1)
            s2 = fma(q, load(k2 + at), s2)
            s3 = fma(q, load(k3 + at), s3)
            s4 = fma(q, load(k4 + at), s4)
            s5 = fma(q, load(k5 + at), s5)
            s6 = fma(q, load(k6 + at), s6)
            s7 = fma(q, load(k7 + at), s7)
        s = sum_lanes_of_8(s0, s1, s2, s3, s4, s5, s6, s7) * splat_f32x8(scale)
        if count - first < 8:
            s = select(first_lanes(count - first), s, nothing)
        store_f32x8(scores + 4 * first, s)
        largest = maximum(s, largest)
    return max_lanes(largest)


@inline
def block_weights(scores: int, count: int, largest: Any) -> Any:
    """Scores to exp(score - largest) in place; returns their sum."""
    shift = splat_f32x8(largest)
    total = splat_f32x8(0.0)
    for first in range(0, count, 8):
        e = exp(load_f32x8(scores + 4 * first) - shift)
        store_f32x8(scores + 4 * first, e)
        total += e
    return sum_lanes(total)


@inline
def merge_values(
    load: Any, element: int, weights: int, values: int, stride: int, count: int, steps: int, state: int, out: int
) -> None:
    """O = O a + (sum of weight * value over the cells) b, over `steps` vectors of a head."""
    old, new = splat_f32x8(load_f32(state + 8)), splat_f32x8(load_f32(state + 12))
    zero = splat_f32x8(0.0)
    wide = steps // 8 * 8
    for i in range(0, wide, 8):
        o0, o1, o2, o3, o4, o5, o6, o7 = zero, zero, zero, zero, zero, zero, zero, zero
        column = values + 8 * element * i
        for c in range(count):
            w = splat_f32x8(load_f32(weights + 4 * c))
            v = column + c * stride
            o0, o1 = fma(w, load(v), o0), fma(w, load(v + 8 * element), o1)
            o2, o3 = fma(w, load(v + 16 * element), o2), fma(w, load(v + 24 * element), o3)
            o4, o5 = fma(w, load(v + 32 * element), o4), fma(w, load(v + 40 * element), o5)
            o6, o7 = fma(w, load(v + 48 * element), o6), fma(w, load(v + 56 * element), o7)
        at = out + 32 * i
        store_f32x8(at, fma(load_f32x8(at), old, o0 * new))
        store_f32x8(at + 32, fma(load_f32x8(at + 32), old, o1 * new))
        store_f32x8(at + 64, fma(load_f32x8(at + 64), old, o2 * new))
        store_f32x8(at + 96, fma(load_f32x8(at + 96), old, o3 * new))
        store_f32x8(at + 128, fma(load_f32x8(at + 128), old, o4 * new))
        store_f32x8(at + 160, fma(load_f32x8(at + 160), old, o5 * new))
        store_f32x8(at + 192, fma(load_f32x8(at + 192), old, o6 * new))
        store_f32x8(at + 224, fma(load_f32x8(at + 224), old, o7 * new))
    for i in range(wide, steps):
        o = zero
        column = values + 8 * element * i
        for c in range(count):
            o = fma(splat_f32x8(load_f32(weights + 4 * c)), load(column + c * stride), o)
        at = out + 32 * i
        store_f32x8(at, fma(load_f32x8(at), old, o * new))


@inline
def merge_state(state: int, largest: Any, total: Any) -> None:
    """Merge a block's (max, sum) into M and L at `state`; the factors a and b follow them there."""
    before = load_f32(state)
    after = larger_f32(before, largest)
    keep = first_lane(exp(splat_f32x8(before - after)))
    take = first_lane(exp(splat_f32x8(largest - after)))
    store_f32(state, after)
    sums = fma(splat_f32x8(load_f32(state + 4)), splat_f32x8(keep), splat_f32x8(total * take))
    store_f32(state + 4, first_lane(sums))
    store_f32(state + 8, keep)
    store_f32(state + 12, take)


@inline
def start_state(state: int, out: int, steps: int) -> None:
    """Nothing seen yet: M = -inf, L = 0, O = 0."""
    store_f32(state, f32(NEGATIVE_INFINITY))
    store_f32(state + 4, f32(0.0))
    for i in range(steps):
        store_f32x8(out + 32 * i, splat_f32x8(0.0))
