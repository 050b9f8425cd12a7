"""Softmax over rows of float32."""

from __future__ import annotations

import numpy as np

from minfer_kernels.cpu.compiler.kernel import Int, Ptr, kernel
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.simd import (
    exp,
    inline,
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    max_lanes,
    maximum,
    splat_f32x8,
    store_f32x8,
    store_f32x8_partial,
    sum_lanes,
)

NEGATIVE_INFINITY = float(-np.inf)


@inline
def softmax_row(x: int, out: int, width: int) -> None:
    """One row; in place allowed.

    Order: lane l sums elements l, l + 8, ...; lanes by the tree of `sum_lanes`; absent lanes count as exp(-inf) = 0.
    """
    rest = width % 8
    at = 4 * (width - rest)
    largest = load_f32x8_partial(x + at, rest, NEGATIVE_INFINITY)
    for i in range(0, width - 7, 8):
        largest = maximum(load_f32x8(x + 4 * i), largest)
    shift = splat_f32x8(max_lanes(largest))
    total = splat_f32x8(0.0)
    for i in range(0, width - 7, 8):
        e = exp(load_f32x8(x + 4 * i) - shift)
        store_f32x8(out + 4 * i, e)
        total += e
    last = exp(load_f32x8_partial(x + at, rest, NEGATIVE_INFINITY) - shift)
    divisor = splat_f32x8(sum_lanes(total + last))
    for i in range(0, width - 7, 8):
        store_f32x8(out + 4 * i, load_f32x8(out + 4 * i) / divisor)
    store_f32x8_partial(out + at, rest, last / divisor)


@kernel
def softmax(
    x: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, tid: Int, n_threads: Int
) -> None:
    """exp(x - max) over its sum, row by row."""
    rows = load_i32(rows_at)
    for row in range(first_item(rows, tid, n_threads), first_item(rows, tid + 1, n_threads)):
        softmax_row(x + row * x_stride, out + row * out_stride, width)
