"""Sixteen groups of elements side by side, one in each lane: element e of group g is number 16 * e + g of a scratch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.simd import (
    f32,
    inline,
    load_f32,
    load_f32x16,
    magnitude_bits,
    max_lanes_i32,
    maximum_i32,
    splat_f32x16,
    splat_i32x16,
    store_f32,
    store_f32x16,
)

GROUPS = 16
ROW = 4 * GROUPS
"""Bytes from an element to the next of the same group."""


def columns_of(size: int) -> Callable[..., Any]:
    """Groups of `size` elements from x on into columns; those that aren't there are zeros."""

    @inline
    def columns(x: int, n_groups: int, into: int) -> None:
        if n_groups != GROUPS:
            for e in range(size):
                store_f32x16(into + ROW * e, splat_f32x16(f32(0.0)))
        for g in range(n_groups):
            for e in range(size):
                store_f32(into + ROW * e + 4 * g, load_f32(x + 4 * (size * g + e)))

    return columns


@inline
def largest_bits(x: int, n: int) -> int:
    """The largest magnitude's bits of n elements, a multiple of 16."""
    largest = splat_i32x16(0)
    for i in range(0, n, 16):
        largest = maximum_i32(largest, magnitude_bits(load_f32x16(x + 4 * i)))
    return max_lanes_i32(largest)
