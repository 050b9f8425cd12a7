"""Copies of strided float32 (or any 4-byte) values."""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Ptr, kernel
from minfer_kernels.cpu.kernels.parts.rows import COLUMNS, ceil_div, first_item
from minfer_kernels.cpu.simd import (
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    smaller,
    store_f32x8,
    store_f32x8_partial,
    store_i32,
)


@kernel
def rows(x: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, tid: Int, n_threads: Int) -> None:
    """Rows of contiguous elements."""
    pieces = ceil_div(width, COLUMNS)
    items = load_i32(rows_at) * pieces
    for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
        row, start = item // pieces, item % pieces * COLUMNS
        stop = smaller(start + COLUMNS, width)
        x_row, out_row = x + row * x_stride, out + row * out_stride
        for i in range(start, stop - 7, 8):
            store_f32x8(out_row + 4 * i, load_f32x8(x_row + 4 * i))
        rest = (stop - start) % 8
        at = 4 * (stop - rest)
        store_f32x8_partial(out_row + at, rest, load_f32x8_partial(x_row + at, rest, 0.0))


@kernel
def strided(
    x: Ptr, out: Ptr, rows_at: Ptr, n1: Int, n2: Int, n3: Int, x_stride: Int, stride1: Int, stride2: Int,
    stride3: Int, tid: Int, n_threads: Int,
) -> None:  # fmt: skip
    """Rows `[n1, n2, n3]` of any byte strides to contiguous rows."""
    rows = load_i32(rows_at)
    for row in range(first_item(rows, tid, n_threads), first_item(rows, tid + 1, n_threads)):
        to = out + row * 4 * n1 * n2 * n3
        for i in range(n1):
            for j in range(n2):
                source = x + row * x_stride + i * stride1 + j * stride2
                for k in range(n3):
                    store_i32(to, load_i32(source + k * stride3))
                    to += 4
