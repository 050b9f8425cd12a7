"""How attention reads the cells of one element type: queries made ready, scores and values of a block.

Cells are named by a table of byte offsets, so that a window's runs cost nothing where they are read. A block that few
queries read is read from its cells; for more, keys and values are widened into scratch once, values in columns of 64
so that a column stays in the L1 cache while every query uses it. Packed keys are always laid out sixteen cells to a
vector, four bytes each, as integer dot products take them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minfer_kernels.cpu.kernels.parts.attention.registers.float_scores import score_store, score_tile
from minfer_kernels.cpu.kernels.parts.attention.registers.floats import load_f16, widen_f16x4
from minfer_kernels.cpu.kernels.parts.attention.registers.packed_scores import (
    quad_start,
    quad_store,
    quad_tile,
    tile_groups,
)
from minfer_kernels.cpu.kernels.parts.attention.registers.staging import stage_lanes, stage_quads
from minfer_kernels.cpu.kernels.parts.attention.registers.values import load_quants16
from minfer_kernels.cpu.kernels.parts.attention.scratch import BLOCK, COLUMNS
from minfer_kernels.cpu.kernels.parts.blocks8 import write_block32
from minfer_kernels.cpu.kernels.parts.rows import ceil_div
from minfer_kernels.cpu.simd import (
    inline,
    load_f16x16,
    load_f16x16_partial,
    load_f32,
    load_f32x8,
    load_f32x16,
    load_f32x16_partial,
    load_i64,
    prefetch,
    smaller,
    splat_f32x16,
    store_f32,
    store_f32x16,
    store_i32,
)

FEW = 4
"""Up to this many queries read a block from its cells: widening it first would not pay."""


class Cells(NamedTuple):
    """The functions of one cell type."""

    element: int
    """Bytes of an element within its cell."""
    start_query: Callable[..., None]
    """(query, head_dim, elements): the query as scores take it."""
    stage_keys: Callable[..., None]
    """(keys, scales, table, ahead, held, head_dim, few, staged, key_scales, spare): what scores read besides cells."""
    scores: Callable[[int], Callable[..., None]]
    """Of (queries at once): (elements, stride, keys, table, ahead, rows, staged, key_scales, head_dim, few, scale, n,
    block, held, scores, states)."""
    stage_values: Callable[..., None]
    """(values, scales, table, ahead, held, head_dim, few, staged, value_scales)."""
    value_type: str
    """What `value_tile` reads where values are not staged."""


@inline
def load_f32x16_start(p: int, n: int) -> Any:
    """The first n float32, zeros in the other lanes."""
    return load_f32x16_partial(p, n, 0.0)


@inline
def reads_cells(n: int, head_dim: int) -> bool:
    """Whether n queries read keys and values of this head size where they lie."""
    return n <= FEW and head_dim % COLUMNS == 0


def cells_of(cell_type: str) -> Cells:
    """The functions of `f32`, `f16` or `q8_0` cells."""
    return _packed_cells() if cell_type == "q8_0" else _float_cells(cell_type)


def _float_cells(cell_type: str) -> Cells:
    load, load_start, element = {
        "f32": (load_f32x16, load_f32x16_start, 4),
        "f16": (load_f16x16, load_f16x16_partial, 2),
    }[cell_type]

    @inline
    def start_query(query: int, head_dim: int, elements: int) -> None:
        """A head's elements, padded with zeros to whole vectors."""
        for i in range(0, head_dim, 16):
            store_f32x16(elements + 4 * i, load_f32x16_start(query + 4 * i, smaller(16, head_dim - i)))

    @inline
    def stage_keys(
        keys: int, _scales: int, table: int, _ahead: int, held: int, head_dim: int, few: bool, staged: int, _to: int,
        _spare: int,
    ) -> None:  # fmt: skip
        """Rows of float32, padded with zeros to whole vectors."""
        if not few:
            width = ceil_div(head_dim, 16) * 64
            for c in range(held):
                source, target = keys + load_i64(table + 8 * c), staged + c * width
                for i in range(0, head_dim - 15, 16):
                    store_f32x16(target + 4 * i, load(source + element * i))
                if head_dim % 16 != 0:
                    i = head_dim // 16 * 16
                    store_f32x16(target + 4 * i, load_start(source + element * i, head_dim - i))

    @inline
    def stage_values(
        values: int, _scales: int, table: int, _ahead: int, held: int, head_dim: int, few: bool, staged: int, _to: int
    ) -> None:
        """Columns of 64 float32, padded with zeros."""
        if not few:
            for c in range(held):
                source = values + load_i64(table + 8 * c)
                for i in range(0, ceil_div(head_dim, COLUMNS) * COLUMNS, 16):
                    target = staged + i // COLUMNS * (4 * COLUMNS * BLOCK) + 4 * COLUMNS * c + 4 * (i % COLUMNS)
                    if i + 16 <= head_dim:
                        store_f32x16(target, load(source + element * i))
                    else:
                        left = head_dim - i
                        store_f32x16(target, load_start(source + element * i, left if left > 0 else 0))

    return Cells(
        element, start_query, stage_keys, lambda n: _float_scores(cell_type, n), stage_values, cell_type
    )  # fmt: skip


def _float_scores(cell_type: str, queries: int) -> Callable[..., None]:
    direct, staged_tile, put = score_tile(cell_type, queries), score_tile("f32", queries), score_store(queries)
    cells = 16 // queries

    @inline
    def scores(
        elements: int, stride: int, keys: int, table: int, ahead: int, rows: int, staged: int, _key_scales: int,
        head_dim: int, few: bool, scale: Any, n: int, block: int, held: int, to: int, states: int,
    ) -> None:  # fmt: skip
        """Cells outside, so that a few of them serve every query from the L1 cache."""
        steps = ceil_div(head_dim, 16)
        factor = splat_f32x16(scale)
        for c in range(0, held, cells):
            for m in range(0, n, queries):
                if load_i64(states + 64 * m + 24) > block + c:
                    at = to + 4 * BLOCK * m + 4 * c
                    if few:
                        sums = direct(elements + stride * m, stride, keys, table + 8 * c, ahead, steps)
                        put(at, 4 * BLOCK, sums * factor)
                    else:
                        sums = staged_tile(elements + stride * m, stride, staged, rows + 8 * c, 0, steps)
                        put(at, 4 * BLOCK, sums * factor)

    return scores


@inline
def widen_scales(scales: int, table: int, ahead: int, held: int, blocks: int, stride: int, to: int) -> None:
    """Every cell's scales of a head to float32, `stride` bytes from cell to cell."""
    for c in range(held):
        source, target = scales + load_i64(table + 8 * c), to + stride * c
        prefetch(source + ahead)
        whole = blocks // 4 * 4
        for i in range(0, whole, 4):
            widen_f16x4(source + 2 * i, target + 4 * i)
        for i in range(whole, blocks):
            store_f32(target + 4 * i, load_f16(source + 2 * i))


def _packed_cells() -> Cells:
    @inline
    def start_query(query: int, head_dim: int, elements: int) -> None:
        """Quants, then float32 scales, then what each integer dot starts from; a block's sum is written over."""
        scales = elements + head_dim
        starts = scales + head_dim // 8
        for i in range(0, head_dim, 32):
            at = query + 4 * i
            v0, v1, v2, v3 = load_f32x8(at), load_f32x8(at + 32), load_f32x8(at + 64), load_f32x8(at + 96)
            write_block32(v0, v1, v2, v3, elements + i, scales + i // 8, starts + i // 8)
            store_i32(starts + i // 8, quad_start(elements + i))

    @inline
    def stage_keys(
        keys: int, scales: int, table: int, ahead: int, held: int, head_dim: int, _few: bool, staged: int, to: int,
        spare: int,
    ) -> None:  # fmt: skip
        """Groups of sixteen cells: for each block eight vectors of quants, and one of scales."""
        blocks = head_dim // 32
        padded = ceil_div(blocks, 4) * 4
        rows = ceil_div(held, 16) * 16
        widen_scales(scales, table, ahead, rows, blocks, 4 * padded, spare)
        for c in range(0, rows, 16):
            stage_quads(keys, table + 8 * c, staged + head_dim * c, head_dim // 16)
            for i in range(c, c + 16):
                place = keys + load_i64(table + 8 * i) + ahead
                for line in range(0, head_dim, 64):
                    prefetch(place + line)
        for c in range(0, rows, 16):
            for i in range(padded // 4):
                stage_lanes(spare + 4 * padded * c + 16 * i, 4 * padded, to + 4 * padded * c + 256 * i)

    @inline
    def stage_values(
        values: int, scales: int, table: int, ahead: int, held: int, head_dim: int, few: bool, staged: int, to: int
    ) -> None:
        """The scales; columns of 64 float32 as well, padded with zeros, where many queries use them."""
        blocks = head_dim // 32
        stride = ceil_div(blocks, 4) * 16
        widen_scales(scales, table, ahead, held, blocks, stride, to)
        if not few:
            for c in range(held):
                source = values + load_i64(table + 8 * c)
                for i in range(0, ceil_div(head_dim, COLUMNS) * COLUMNS, 16):
                    target = staged + i // COLUMNS * (4 * COLUMNS * BLOCK) + 4 * COLUMNS * c + 4 * (i % COLUMNS)
                    if i < head_dim:
                        store_f32x16(target, load_quants16(source + i, load_f32(to + stride * c + 4 * (i // 32))))
                    else:
                        store_f32x16(target, splat_f32x16(0.0))

    return Cells(1, start_query, stage_keys, _packed_scores, stage_values, "q8_0")


def _packed_scores(queries: int) -> Callable[..., None]:
    tile, put = quad_tile(queries), quad_store(queries)
    cells = 16 * tile_groups(queries)

    @inline
    def scores(
        elements: int, stride: int, _keys: int, _table: int, _ahead: int, _rows: int, staged: int, key_scales: int,
        head_dim: int, _few: bool, scale: Any, n: int, block: int, held: int, to: int, states: int,
    ) -> None:  # fmt: skip
        """Queries outside: the packed block fits the L1 cache."""
        blocks = head_dim // 32
        scale_row = ceil_div(blocks, 4) * 16
        for m in range(0, n, queries):
            left = smaller(held, load_i64(states + 64 * m + 24) - block)
            for c in range(0, left, cells):
                found = tile(
                    elements + stride * m, stride, head_dim, staged + head_dim * c, 16 * head_dim,
                    key_scales + scale_row * c, 16 * scale_row, blocks,
                )  # fmt: skip
                put(to + 4 * BLOCK * m + 4 * c, 4 * BLOCK, found, scale)

    return scores
