"""Products that leave as heads or cells: with a bias or a norm, rotated, stored.

`rows` and `cells` give the bits of the kernels that they stand for. Threads take ranges of units of output rows: a head
where a norm or the neox pairing needs all of it, else as few as every layout has in whole groups.
"""

from __future__ import annotations

from collections.abc import Callable

from minfer_kernels.cpu.compiler.kernel import F32, Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.norm import add_row, norm_row
from minfer_kernels.cpu.kernels.parts.cell_rows import cell_writer
from minfer_kernels.cpu.kernels.parts.panels import tile_tokens
from minfer_kernels.cpu.kernels.parts.product_tiles import tile_filler
from minfer_kernels.cpu.kernels.parts.rows import ceil_div, first_item
from minfer_kernels.cpu.kernels.parts.tile_scratch import TILE_BYTES, UNIT
from minfer_kernels.cpu.kernels.rope import copy_elements, rotation
from minfer_kernels.cpu.simd import inline, larger, load_i32, smaller


@kernel_family
def rows(fmt: str, group_rows: int, before: str, pairs: str) -> Kernel:
    """x * w, then `before` (plain, add a bias, norm the heads) and rope with `pairs`, to rows of float32.

    `vector` is the bias `[n]` or the norm's weight `[head_dim]`. The other operands are those of `fused_matmul.add`
    and `fused_rope.norm`.
    """
    fill, finish, takes_heads = (
        tile_filler(fmt.upper(), group_rows),
        _finisher(before, pairs),
        _takes_heads(before, pairs),
    )

    @kernel
    def rows(
        x: Ptr, w: Ptr, vector: Ptr, positions: Ptr, table: Ptr, out: Ptr, rows_at: Ptr, scratch: Ptr, n: Int, k: Int,
        head_dim: Int, dims: Int, x_stride: Int, out_stride: Int, table_stride: Int, eps: F32, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        n_rows, tile = load_i32(rows_at), scratch + tid * TILE_BYTES
        unit_rows = head_dim if takes_heads else UNIT
        units, stride = ceil_div(n, unit_rows), 4 * ceil_div(unit_rows, UNIT) * UNIT
        most = tile_tokens(x_stride, stride)
        first, end = first_item(units, tid, n_threads), first_item(units, tid + 1, n_threads)
        for t in range(0, n_rows, most):
            tokens = smaller(most, n_rows - t)
            for unit in range(first, end):
                row = unit * unit_rows
                count = smaller(unit_rows, n - row)
                fill(w, row, count, k, x + t * x_stride, x_stride, tokens, tile, stride)
                for i in range(tokens):
                    at = tile + stride * i
                    finish(at, row, count, vector, positions + 4 * (t + i), table, table_stride, head_dim, dims, eps)
                    copy_elements(at, out + (t + i) * out_stride + 4 * row, count)

    return rows


@kernel_family
def cells(fmt: str, group_rows: int, before: str, pairs: str, cell_type: str) -> Kernel:
    """As `rows`, into the cells of `region`; `pairs` "none" doesn't rotate."""
    fill, finish, takes_heads = (
        tile_filler(fmt.upper(), group_rows),
        _finisher(before, pairs),
        _takes_heads(before, pairs),
    )
    write = cell_writer(cell_type)

    @kernel
    def cells(
        x: Ptr, w: Ptr, vector: Ptr, positions: Ptr, table: Ptr, region: Ptr, cells: Ptr, rows_at: Ptr, scratch: Ptr,
        n: Int, k: Int, head_dim: Int, dims: Int, x_stride: Int, cell_bytes: Int, table_stride: Int, eps: F32,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        n_rows, tile = load_i32(rows_at), scratch + tid * TILE_BYTES
        unit_rows = head_dim if takes_heads else UNIT
        units, stride = ceil_div(n, unit_rows), 4 * ceil_div(unit_rows, UNIT) * UNIT
        most = tile_tokens(x_stride, stride)
        first, end = first_item(units, tid, n_threads), first_item(units, tid + 1, n_threads)
        for t in range(0, n_rows, most):
            tokens = smaller(most, n_rows - t)
            for unit in range(first, end):
                row = unit * unit_rows
                count = smaller(unit_rows, n - row)
                fill(w, row, count, k, x + t * x_stride, x_stride, tokens, tile, stride)
                for i in range(tokens):
                    at = tile + stride * i
                    finish(at, row, count, vector, positions + 4 * (t + i), table, table_stride, head_dim, dims, eps)
                    write(at, region + load_i32(cells + 4 * (t + i)) * cell_bytes, row, count)

    return cells


def _takes_heads(before: str, pairs: str) -> bool:
    return before == "norm" or pairs == "neox"


def _finisher(before: str, pairs: str) -> Callable[..., None]:
    """What happens to `count` results at `at`, output rows from `row` on, in place."""
    adds, norms = before == "add", before == "norm"
    rotates, interleaved = pairs != "none", pairs == "interleaved"
    rotate = rotation(pairs if rotates else "neox")

    @inline
    def finish(
        at: int, row: int, count: int, vector: int, position: int, table: int, table_stride: int, head_dim: int,
        dims: int, eps: float,
    ) -> None:  # fmt: skip
        if adds:
            add_row(at, vector + 4 * row, at, count)
        if norms:
            norm_row(at, vector, at, head_dim, eps)
        if rotates:
            cos = table + load_i32(position) * table_stride
            # A unit may be a part of a head; adjacent pairs then start with their own angles.
            start = row % head_dim if interleaved else 0
            turned = larger(0, smaller(dims - start, count)) if interleaved else dims
            rotate(at, at, cos + 2 * start, cos + 2 * dims + 2 * start, turned)

    return finish
