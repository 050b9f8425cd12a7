"""Elementwise kernels over rows of float32: each output element depends on its own inputs alone.

Rows have byte strides and contiguous elements; `rows_at` is the address of an int32, the rows to process.
Outputs may be the same memory as an input with the same stride. Threads share rows, and pieces of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.compiler.kernel import F32, Int, Kernel, Ptr, kernel
from minfer_kernels.cpu.kernels.parts.lanes import silu_lanes, swiglu_lanes
from minfer_kernels.cpu.kernels.parts.rows import COLUMNS, ceil_div, first_item
from minfer_kernels.cpu.simd import (
    inline,
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    smaller,
    splat_f32x8,
    store_f32x8,
    store_f32x8_partial,
)


@inline
def add_lanes(x: Any, y: Any) -> Any:
    """x + y."""
    return x + y


@inline
def multiply_lanes(x: Any, y: Any) -> Any:
    """x * y."""
    return x * y


@inline
def scale_lanes(x: Any, factor: Any) -> Any:
    """x * factor."""
    return x * splat_f32x8(factor)


@inline
def silu_ignoring(x: Any, _factor: Any) -> Any:
    """silu(x)."""
    return silu_lanes(x)


@inline
def unary_rows(
    lanes: Any, x: int, out: int, rows: int, width: int, x_stride: int, out_stride: int, factor: float,
    tid: int, n_threads: int,
) -> None:  # fmt: skip
    """out = lanes(x, factor) for every element."""
    pieces = ceil_div(width, COLUMNS)
    items = rows * pieces
    for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
        row, start = item // pieces, item % pieces * COLUMNS
        stop = smaller(start + COLUMNS, width)
        x_row, out_row = x + row * x_stride, out + row * out_stride
        for i in range(start, stop - 7, 8):
            store_f32x8(out_row + 4 * i, lanes(load_f32x8(x_row + 4 * i), factor))
        rest = (stop - start) % 8
        if rest != 0:
            at = 4 * (stop - rest)
            store_f32x8_partial(out_row + at, rest, lanes(load_f32x8_partial(x_row + at, rest, 0.0), factor))


def _binary(lanes: Callable[[Any, Any], Any]) -> Kernel:
    @kernel
    def binary(
        x: Ptr, y: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, y_stride: Int, out_stride: Int,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        pieces = ceil_div(width, COLUMNS)
        items = load_i32(rows_at) * pieces
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            row, start = item // pieces, item % pieces * COLUMNS
            stop = smaller(start + COLUMNS, width)
            x_row, y_row, out_row = x + row * x_stride, y + row * y_stride, out + row * out_stride
            for i in range(start, stop - 7, 8):
                store_f32x8(out_row + 4 * i, lanes(load_f32x8(x_row + 4 * i), load_f32x8(y_row + 4 * i)))
            rest = (stop - start) % 8
            if rest != 0:
                at = 4 * (stop - rest)
                x_rest, y_rest = load_f32x8_partial(x_row + at, rest, 0.0), load_f32x8_partial(y_row + at, rest, 0.0)
                store_f32x8_partial(out_row + at, rest, lanes(x_rest, y_rest))

    return binary


# `y_stride` 0 applies one row of y to every row of x.
add = _binary(add_lanes)
mul = _binary(multiply_lanes)
# Operands x and y are the gate and the up projection.
swiglu = _binary(swiglu_lanes)


@kernel
def silu(x: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, tid: Int, n_threads: Int) -> None:
    """out = x / (1 + exp(-x))."""
    unary_rows(silu_ignoring, x, out, load_i32(rows_at), width, x_stride, out_stride, 0.0, tid, n_threads)


@kernel
def scale(
    x: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, factor: F32, tid: Int, n_threads: Int
) -> None:
    """out = x * factor."""
    unary_rows(scale_lanes, x, out, load_i32(rows_at), width, x_stride, out_stride, factor, tid, n_threads)
