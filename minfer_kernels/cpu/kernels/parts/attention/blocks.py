"""The arithmetic of attention over one KV block, and of merging blocks: the order that every path keeps.

A block is 128 logical positions. Its canonical order, whatever the threads, rows, tiles or cells:

- score of a float cell: lane l of sixteen multiplies and adds elements l, l + 16, ... of the head (fused, ascending),
  the lanes add by the tree of `sum_lanes`, the sum times `scale`;
- score of a packed cell: a chain over blocks of 32 elements, ascending from 0, of fma(dq * dk, float(integer dot), s),
  then times `scale`; dq and the query's quants are those of Q8A32;
- m = the largest score; weights `exp_weight`(score - m); their sum by lanes l, l + 16, ... and the tree; absent cells
  count 0;
- values: every element a chain of fused multiply-adds over the cells, ascending, from 0; a packed value, d * q, is
  exact;
- merge into (M, L, O): N = max(M, m), a = exp_weight(M - N), b = exp_weight(m - N), L = L a + l b (fused),
  O = O a + o b (fused), blocks ascending from (-inf, 0, 0).

The result is O / L. A block's (m, l, o) depends on no other block, so blocks may be computed anywhere and merged later.
"""

from __future__ import annotations

import numpy as np

from minfer_kernels.cpu.kernels.parts.attention.registers.weights import exp_weight
from minfer_kernels.cpu.simd import (
    f32,
    first_lane,
    first_lanes16,
    fma,
    inline,
    larger_f32,
    load_f32,
    load_f32x16,
    max_lanes,
    maximum,
    select,
    smaller,
    splat_f32x16,
    store_f32,
    store_f32x16,
    store_f32x16_partial,
    sum_lanes,
)

NEGATIVE_INFINITY = float(-np.inf)


@inline
def block_weights(scores: int, count: int, state: int) -> None:
    """Scores of `count` cells to weights in place; their maximum and sum to `state`."""
    nothing = splat_f32x16(NEGATIVE_INFINITY)
    whole, rest = count // 16 * 16, count % 16
    last = scores + 4 * whole
    largest = nothing
    for i in range(0, whole, 16):
        largest = maximum(load_f32x16(scores + 4 * i), largest)
    if rest != 0:
        largest = maximum(select(first_lanes16(rest), load_f32x16(last), nothing), largest)
    most = max_lanes(largest)
    shift = splat_f32x16(most)
    zero = splat_f32x16(0.0)
    total = zero
    for i in range(0, whole, 16):
        weight = exp_weight(load_f32x16(scores + 4 * i) - shift)
        store_f32x16(scores + 4 * i, weight)
        total += weight
    if rest != 0:
        weight = select(first_lanes16(rest), exp_weight(load_f32x16(last) - shift), zero)
        store_f32x16(last, weight)
        total += weight
    store_f32(state, most)
    store_f32(state + 4, sum_lanes(total))


@inline
def merge_state(state: int, block: int) -> None:
    """Merge a block's maximum and sum (at `block`) into M and L at `state`; the factors a and b follow them there."""
    before, largest = load_f32(state), load_f32(block)
    after = larger_f32(before, largest)
    keep = first_lane(exp_weight(splat_f32x16(before - after)))
    take = first_lane(exp_weight(splat_f32x16(largest - after)))
    store_f32(state, after)
    added = splat_f32x16(load_f32(block + 4) * take)
    store_f32(state + 4, first_lane(fma(splat_f32x16(load_f32(state + 4)), splat_f32x16(keep), added)))
    store_f32(state + 8, keep)
    store_f32(state + 12, take)


@inline
def merge_values(state: int, block: int, result: int, vectors: int) -> None:
    """O = O a + o b, with the factors that `merge_state` left."""
    keep, take = splat_f32x16(load_f32(state + 8)), splat_f32x16(load_f32(state + 12))
    for i in range(vectors):
        at = result + 64 * i
        store_f32x16(at, fma(load_f32x16(at), keep, load_f32x16(block + 64 * i) * take))


@inline
def start_state(state: int, result: int, vectors: int) -> None:
    """Nothing seen yet: M = -inf, L = 0, O = 0."""
    store_f32(state, f32(NEGATIVE_INFINITY))
    store_f32(state + 4, f32(0.0))
    clear(result, vectors)


@inline
def clear(p: int, vectors: int) -> None:
    """Zeros."""
    for i in range(vectors):
        store_f32x16(p + 64 * i, splat_f32x16(0.0))


@inline
def copy(source: int, target: int, vectors: int) -> None:
    """Vectors as they are."""
    for i in range(vectors):
        store_f32x16(target + 64 * i, load_f32x16(source + 64 * i))


@inline
def write_result(values: int, state: int, out: int, head_dim: int) -> None:
    """O / L of one head to `head_dim` float32, or zeros where the window was empty."""
    total = load_f32(state + 4)
    empty = load_f32(state) == NEGATIVE_INFINITY and total == 0.0
    divisor = splat_f32x16(f32(1.0) if empty else total)
    for i in range(0, head_dim, 16):
        store_f32x16_partial(out + 4 * i, smaller(16, head_dim - i), load_f32x16(values + 4 * i) / divisor)
