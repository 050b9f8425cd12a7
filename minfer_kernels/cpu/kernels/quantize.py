"""Rows of float32 to 8-bit activation rows, plain and fused with what makes the values.

An output row holds three planes: `width` int8 quants, the float32 scales of its blocks, then the sums
(`minfer_ir.formats.activation`). Families take the block size, 32 or 256. Fused kernels give the bits of the
kernels they stand for, one after the other. Threads share rows, and pieces of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.compiler.kernel import F32, Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.blocks8 import write_block32, write_block256
from minfer_kernels.cpu.kernels.parts.lanes import inverse_rms, normed_lanes, swiglu_lanes
from minfer_kernels.cpu.kernels.parts.rows import ceil_div, first_item
from minfer_kernels.cpu.simd import (
    inline,
    load_f32x8,
    load_i32,
    smaller,
    splat_f32x8,
    stack_1k,
    store_f32x8,
)

# Elements of a work item: sixteen blocks of 32, or two of 256.
PIECE = 512

Values = Callable[..., Any]
Writer = Callable[..., None]


def row_writer(block_size: int, values: Values) -> Writer:
    """Quantize elements [start, stop) of a row; `values(x, y, i, factor)` gives elements i to i + 7."""
    if block_size not in (32, 256):
        raise ValueError(f"activation blocks hold 32 or 256 elements, got {block_size}")

    @inline
    def write32(x: int, y: int, factor: Any, out: int, width: int, start: int, stop: int) -> None:
        scales = out + width
        sums = scales + 4 * (width // 32)
        for i in range(start, stop, 32):
            v0, v1 = values(x, y, i, factor), values(x, y, i + 8, factor)
            v2, v3 = values(x, y, i + 16, factor), values(x, y, i + 24, factor)
            write_block32(v0, v1, v2, v3, out + i, scales + i // 8, sums + i // 8)

    @inline
    def write256(x: int, y: int, factor: Any, out: int, width: int, start: int, stop: int) -> None:
        scales = out + width
        sums = scales + 4 * (width // 256)
        block = stack_1k()
        for i in range(start, stop, 256):
            for j in range(0, 256, 8):
                store_f32x8(block + 4 * j, values(x, y, i + j, factor))
            write_block256(block, out + i, scales + i // 64, sums + i // 8)

    return write32 if block_size == 32 else write256


@inline
def loaded(x: int, _y: int, i: int, _factor: Any) -> Any:
    """x."""
    return load_f32x8(x + 4 * i)


@inline
def gated(x: int, y: int, i: int, _factor: Any) -> Any:
    """silu(x) * y."""
    return swiglu_lanes(load_f32x8(x + 4 * i), load_f32x8(y + 4 * i))


@inline
def normed(x: int, y: int, i: int, factor: Any) -> Any:
    """x * factor * y: a norm's result, `factor` the inverse root mean square and y the weight."""
    return normed_lanes(load_f32x8(x + 4 * i), splat_f32x8(factor), load_f32x8(y + 4 * i))


@kernel_family
def rows(block_size: int) -> Kernel:
    """Quantize rows; `width` is a whole number of blocks."""
    write = row_writer(block_size, loaded)

    @kernel
    def rows(
        x: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, tid: Int, n_threads: Int
    ) -> None:
        pieces = ceil_div(width, PIECE)
        items = load_i32(rows_at) * pieces
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            row, start = item // pieces, item % pieces * PIECE
            write(x + row * x_stride, 0, 0.0, out + row * out_stride, width, start, smaller(start + PIECE, width))

    return rows


@kernel_family
def swiglu(block_size: int) -> Kernel:
    """Quantize silu(gate) * up."""
    write = row_writer(block_size, gated)

    @kernel
    def swiglu(
        gate: Ptr, up: Ptr, out: Ptr, rows_at: Ptr, width: Int, gate_stride: Int, up_stride: Int, out_stride: Int,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        pieces = ceil_div(width, PIECE)
        items = load_i32(rows_at) * pieces
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            row, start = item // pieces, item % pieces * PIECE
            gate_row, up_row = gate + row * gate_stride, up + row * up_stride
            write(gate_row, up_row, 0.0, out + row * out_stride, width, start, smaller(start + PIECE, width))

    return swiglu


@kernel_family
def rms_norm(block_size: int) -> Kernel:
    """Quantize x / rms(x) * weight; where rows are few, threads repeat the cheap reduction and share the rest."""
    write = row_writer(block_size, normed)

    @kernel
    def rms_norm(
        x: Ptr, weight: Ptr, out: Ptr, rows_at: Ptr, width: Int, x_stride: Int, out_stride: Int, eps: F32,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        pieces = ceil_div(width, PIECE)
        items = load_i32(rows_at) * pieces
        item, end = first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)
        while item < end:
            row = item // pieces
            first, stop_piece = item - row * pieces, smaller(pieces, end - row * pieces)
            x_row = x + row * x_stride
            inverse = inverse_rms(x_row, width, eps)
            stop = smaller(stop_piece * PIECE, width)
            write(x_row, weight, inverse, out + row * out_stride, width, first * PIECE, stop)
            item = row * pieces + stop_piece

    return rms_norm
