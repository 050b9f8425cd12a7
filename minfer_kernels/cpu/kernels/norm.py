"""RMS norms over rows of float32, and over heads of a row; eps is a float32 immediate.

A row's mean square has one order (`parts/lanes.py`: sum_of_squares); one thread takes a whole row.
"""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.compiler.kernel import F32, Int, Ptr, kernel
from minfer_kernels.cpu.kernels.parts.lanes import inverse_rms, normed_lanes
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.simd import (
    inline,
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    splat_f32x8,
    store_f32x8,
    store_f32x8_partial,
)


@inline
def norm_row(x: int, weight: int, out: int, width: int, eps: Any) -> None:
    """out = x / rms(x) * weight for one row; in place allowed."""
    inverse = splat_f32x8(inverse_rms(x, width, eps))
    for i in range(0, width - 7, 8):
        store_f32x8(out + 4 * i, normed_lanes(load_f32x8(x + 4 * i), inverse, load_f32x8(weight + 4 * i)))
    rest = width % 8
    if rest != 0:
        at = 4 * (width - rest)
        v, w = load_f32x8_partial(x + at, rest, 0.0), load_f32x8_partial(weight + at, rest, 0.0)
        store_f32x8_partial(out + at, rest, normed_lanes(v, inverse, w))


@inline
def add_row(x: int, y: int, out: int, width: int) -> None:
    """out = x + y for one row."""
    for i in range(0, width - 7, 8):
        store_f32x8(out + 4 * i, load_f32x8(x + 4 * i) + load_f32x8(y + 4 * i))
    rest = width % 8
    if rest != 0:
        at = 4 * (width - rest)
        total = load_f32x8_partial(x + at, rest, 0.0) + load_f32x8_partial(y + at, rest, 0.0)
        store_f32x8_partial(out + at, rest, total)


@kernel
def rms_norm(
    x: Ptr, weight: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, eps: F32,
    tid: Int, n_threads: Int,
) -> None:  # fmt: skip
    """Each row over its root mean square, times the weight."""
    rows = load_i32(rows_at)
    for row in range(first_item(rows, tid, n_threads), first_item(rows, tid + 1, n_threads)):
        norm_row(x + row * x_stride, weight, out + row * out_stride, width, eps)


@kernel
def qk_norm(
    x: Ptr, weight: Ptr, out: Ptr, rows_at: Ptr, n_heads: Int, head_dim: Int, x_stride: Int, x_head_stride: Int,
    out_stride: Int, out_head_stride: Int, eps: F32, tid: Int, n_threads: Int,
) -> None:  # fmt: skip
    """`rms_norm` of every head `[head_dim]` of every row `[n_heads, head_dim]`."""
    items = load_i32(rows_at) * n_heads
    for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
        row, head = item // n_heads, item % n_heads
        x_head = x + row * x_stride + head * x_head_stride
        norm_row(x_head, weight, out + row * out_stride + head * out_head_stride, head_dim, eps)


@kernel
def add_rms_norm(
    x: Ptr, y: Ptr, weight: Ptr, total: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, y_stride: Int,
    total_stride: Int, out_stride: Int, eps: F32, tid: Int, n_threads: Int,
) -> None:  # fmt: skip
    """total = x + y (may be x's or y's memory); out = rms_norm(total)."""
    rows = load_i32(rows_at)
    for row in range(first_item(rows, tid, n_threads), first_item(rows, tid + 1, n_threads)):
        total_row = total + row * total_stride
        add_row(x + row * x_stride, y + row * y_stride, total_row, width)
        norm_row(total_row, weight, out + row * out_stride, width, eps)
