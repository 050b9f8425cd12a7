"""Elementwise kernels over rows of float32: each output element depends on its own inputs alone.

Rows have byte strides and contiguous elements; `rows_at` is the address of an int32, the rows to process.
Outputs may be the same memory as an input with the same stride. Threads share rows, and pieces of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.kernel import F32, Int, Kernel, Ptr, kernel
from minfer_kernels.cpu.rows import COLUMNS, ceil_div, first_item
from minfer_kernels.cpu.simd import (
    exp,
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
def silu_lanes(x: Any) -> Any:
    """x / (1 + exp(-x))."""
    return x / (splat_f32x8(1.0) + exp(-x))


@inline
def swiglu_lanes(gate: Any, up: Any) -> Any:
    """silu(gate) * up."""
    return silu_lanes(gate) * up


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
            xr, yr, outr = x + row * x_stride, y + row * y_stride, out + row * out_stride
            for i in range(start, stop - 7, 8):
                store_f32x8(outr + 4 * i, lanes(load_f32x8(xr + 4 * i), load_f32x8(yr + 4 * i)))
            rest = (stop - start) % 8
            if rest != 0:
                at = 4 * (stop - rest)
                xv, yv = load_f32x8_partial(xr + at, rest, 0.0), load_f32x8_partial(yr + at, rest, 0.0)
                store_f32x8_partial(outr + at, rest, lanes(xv, yv))

    return binary


add = _binary(add_lanes)
mul = _binary(multiply_lanes)
swiglu = _binary(swiglu_lanes)


@kernel
def silu(x: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, tid: Int, n_threads: Int) -> None:
    """out = silu(x)."""
    pieces = ceil_div(width, COLUMNS)
    items = load_i32(rows_at) * pieces
    for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
        row, start = item // pieces, item % pieces * COLUMNS
        stop = smaller(start + COLUMNS, width)
        xr, outr = x + row * x_stride, out + row * out_stride
        for i in range(start, stop - 7, 8):
            store_f32x8(outr + 4 * i, silu_lanes(load_f32x8(xr + 4 * i)))
        rest = (stop - start) % 8
        if rest != 0:
            at = 4 * (stop - rest)
            store_f32x8_partial(outr + at, rest, silu_lanes(load_f32x8_partial(xr + at, rest, 0.0)))
