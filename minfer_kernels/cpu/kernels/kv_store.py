"""Storing rows into KV cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.blocks8 import INFINITY_BITS
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.simd import (
    bits_of_f32,
    f32,
    f32_of_bits,
    inline,
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    magnitude_bits,
    max_lanes_i32,
    maximum_i32,
    splat_f32x8,
    splat_i32x8,
    store_f16x8,
    store_f16x8_partial,
    store_f32x8,
    store_f32x8_partial,
    store_i8x8,
    store_i16,
    to_f32,
    to_i32,
)

F16_OVERFLOW = np.float32(65520.0)
"""The smallest float32 that float16 rounds to infinity."""
F16_NAN = 0x7E00


@kernel_family
def rows(cell_type: str) -> Kernel:
    """Row t of `values` `[width]` float32 into cell `cells[t]` (int32) of `region`, as f32, f16 or q8_0.

    float16 rounds half to even and overflows to infinity; q8_0 gives the bits of `minfer_ir.formats.cells`. Cells were
    checked before anything ran.
    """
    write = {"f32": _write_f32, "f16": _write_f16, "q8_0": _write_q8_0}[cell_type]

    @kernel
    def rows(
        values: Ptr, region: Ptr, cells: Ptr, rows_at: Ptr, width: Int, values_stride: Int, cell_bytes: Int,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        n_rows = load_i32(rows_at)
        for row in range(first_item(n_rows, tid, n_threads), first_item(n_rows, tid + 1, n_threads)):
            write(values + row * values_stride, region + load_i32(cells + 4 * row) * cell_bytes, width)

    return rows


@inline
def _write_f32(source: int, cell: int, width: int) -> None:
    for i in range(0, width - 7, 8):
        store_f32x8(cell + 4 * i, load_f32x8(source + 4 * i))
    rest = width % 8
    i = width - rest
    store_f32x8_partial(cell + 4 * i, rest, load_f32x8_partial(source + 4 * i, rest, 0.0))


@inline
def _write_f16(source: int, cell: int, width: int) -> None:
    for i in range(0, width - 7, 8):
        store_f16x8(cell + 2 * i, load_f32x8(source + 4 * i))
    rest = width % 8
    i = width - rest
    store_f16x8_partial(cell + 2 * i, rest, load_f32x8_partial(source + 4 * i, rest, 0.0))


@inline
def _write_q8_0(source: int, cell: int, width: int) -> None:
    for i in range(0, width, 32):
        write_cell_block(source + 4 * i, cell + i, cell + width + i // 16)


@inline
def write_cell_block(source: int, quants: int, scale: int) -> None:
    """32 float32 to 32 int8 and a float16 scale."""
    v0, v1, v2, v3 = load_f32x8(source), load_f32x8(source + 32), load_f32x8(source + 64), load_f32x8(source + 96)
    largest = maximum_i32(
        maximum_i32(magnitude_bits(v0), magnitude_bits(v1)), maximum_i32(magnitude_bits(v2), magnitude_bits(v3))
    )
    amax_bits = max_lanes_i32(largest)
    d = f32_of_bits(amax_bits) / f32(127.0)
    if amax_bits >= INFINITY_BITS or d >= F16_OVERFLOW:
        for i in range(0, 32, 8):
            store_i8x8(quants + i, splat_i32x8(0))
        store_i16(scale, F16_NAN)
    else:
        inverse = f32(1.0) / d
        factor = splat_f32x8(f32(0.0) if bits_of_f32(inverse) >= INFINITY_BITS else inverse)
        store_i8x8(quants, _rounded_away(v0 * factor))
        store_i8x8(quants + 8, _rounded_away(v1 * factor))
        store_i8x8(quants + 16, _rounded_away(v2 * factor))
        store_i8x8(quants + 24, _rounded_away(v3 * factor))
        store_f16x8_partial(scale, 1, splat_f32x8(d))


@inline
def _rounded_away(x: Any) -> Any:
    """To the nearest integer, halves away from zero: twice what truncation leaves is exact, and 1 from a half on."""
    whole = to_i32(x)
    rest = x - to_f32(whole)
    return whole + to_i32(rest + rest)
