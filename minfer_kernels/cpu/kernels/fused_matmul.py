"""Matrix products that finish their results before storing them; each gives the bits of the kernels it stands for.

Threads take ranges of *units*: as many output rows as the step behind the product needs together. Rows of x are taken
in tiles, so that a unit's weights stay in cache while they meet a tile of tokens. Operands are those of
`matmul.matmul`; `scratch`, `TILE_BYTES` a thread, holds the tile.
"""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.norm import add_row
from minfer_kernels.cpu.kernels.parts.lanes import swiglu_lanes
from minfer_kernels.cpu.kernels.parts.panels import tile_tokens
from minfer_kernels.cpu.kernels.parts.product_tiles import tile_filler
from minfer_kernels.cpu.kernels.parts.rows import ceil_div, first_item
from minfer_kernels.cpu.kernels.parts.tile_scratch import TILE_BYTES, UNIT
from minfer_kernels.cpu.kernels.quantize import gated, row_writer
from minfer_kernels.cpu.simd import (
    inline,
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    smaller,
    store_f32x8,
    store_f32x8_partial,
)


@kernel_family
def add(fmt: str, group_rows: int) -> Kernel:
    """out = x * w + y; `y_stride` 0 adds one row of y everywhere. `out` may be y's memory with its stride."""
    fill = tile_filler(fmt.upper(), group_rows)

    @kernel
    def add(
        x: Ptr, w: Ptr, y: Ptr, out: Ptr, rows_at: Ptr, scratch: Ptr, x_stride: Int, y_stride: Int, out_stride: Int,
        n: Int, k: Int, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        rows, units, tile = load_i32(rows_at), ceil_div(n, UNIT), scratch + tid * TILE_BYTES
        most = tile_tokens(x_stride, 4 * UNIT)
        first, end = first_item(units, tid, n_threads), first_item(units, tid + 1, n_threads)
        for t in range(0, rows, most):
            tokens = smaller(most, rows - t)
            for unit in range(first, end):
                row = unit * UNIT
                count = smaller(UNIT, n - row)
                fill(w, row, count, k, x + t * x_stride, x_stride, tokens, tile, 4 * UNIT)
                for i in range(tokens):
                    y_row, out_row = y + (t + i) * y_stride, out + (t + i) * out_stride
                    add_row(tile + 4 * UNIT * i, y_row + 4 * row, out_row + 4 * row, count)

    return add


@kernel_family
def swiglu(fmt: str, group_rows: int) -> Kernel:
    """out = silu(x * gate) * (x * up), the weights `[n, k]` each."""
    fill = tile_filler(fmt.upper(), group_rows)

    @kernel
    def swiglu(
        x: Ptr, gate: Ptr, up: Ptr, out: Ptr, rows_at: Ptr, scratch: Ptr, x_stride: Int, out_stride: Int,
        n: Int, k: Int, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        rows, units, tile = load_i32(rows_at), ceil_div(n, UNIT), scratch + tid * TILE_BYTES
        stride = 8 * UNIT
        most = tile_tokens(x_stride, stride)
        first, end = first_item(units, tid, n_threads), first_item(units, tid + 1, n_threads)
        for t in range(0, rows, most):
            tokens = smaller(most, rows - t)
            for unit in range(first, end):
                row = unit * UNIT
                count = smaller(UNIT, n - row)
                for half in range(2):
                    w = up if half else gate
                    fill(w, row, count, k, x + t * x_stride, x_stride, tokens, tile + 4 * UNIT * half, stride)
                for i in range(tokens):
                    gates = tile + stride * i
                    gate_row(gates, gates + 4 * UNIT, out + (t + i) * out_stride + 4 * row, count)

    return swiglu


@inline
def gate_row(gate: int, up: int, out: int, width: int) -> None:
    """out = silu(gate) * up for one row."""
    for i in range(0, width - 7, 8):
        store_f32x8(out + 4 * i, swiglu_lanes(load_f32x8(gate + 4 * i), load_f32x8(up + 4 * i)))
    rest = width % 8
    if rest != 0:
        at = 4 * (width - rest)
        gates, ups = load_f32x8_partial(gate + at, rest, 0.0), load_f32x8_partial(up + at, rest, 0.0)
        store_f32x8_partial(out + at, rest, swiglu_lanes(gates, ups))


@kernel_family
def swiglu_quantize(fmt: str, group_rows: int, block_size: int) -> Kernel:
    """`swiglu` into activation rows of blocks of `block_size`, a unit a block; `n` is a whole number of them."""
    fill, write = tile_filler(fmt.upper(), group_rows), row_writer(block_size, gated)
    stride = 8 * block_size

    @kernel
    def swiglu_quantize(
        x: Ptr, gate: Ptr, up: Ptr, out: Ptr, rows_at: Ptr, scratch: Ptr, x_stride: Int, out_stride: Int,
        n: Int, k: Int, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        rows, units, tile = load_i32(rows_at), n // block_size, scratch + tid * TILE_BYTES
        most = tile_tokens(x_stride, stride)
        first, end = first_item(units, tid, n_threads), first_item(units, tid + 1, n_threads)
        for t in range(0, rows, most):
            tokens = smaller(most, rows - t)
            for unit in range(first, end):
                row = unit * block_size
                for half in range(2):
                    w, at = up if half else gate, tile + 4 * block_size * half
                    fill(w, row, block_size, k, x + t * x_stride, x_stride, tokens, at, stride)
                for i in range(tokens):
                    # The writer indexes its values by their place in the whole row.
                    gates = tile + stride * i - 4 * row
                    ups = gates + 4 * block_size
                    write(gates, ups, 0.0, out + (t + i) * out_stride, n, row, row + block_size)

    return swiglu_quantize
