"""Rows that share their cells, against the query heads of one KV head: blocks from first to last.

`tile_of` makes the function that the kernels call. Its queries are rows times heads, the heads of a row together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.kernels.parts.attention.blocks import (
    block_weights,
    clear,
    copy,
    merge_state,
    merge_values,
    start_state,
)
from minfer_kernels.cpu.kernels.parts.attention.cells import Cells, cells_of, reads_cells
from minfer_kernels.cpu.kernels.parts.attention.registers.loops import QUERY_COUNTS, VECTORS
from minfer_kernels.cpu.kernels.parts.attention.registers.values import value_tile
from minfer_kernels.cpu.kernels.parts.attention.scratch import BLOCK, COLUMNS
from minfer_kernels.cpu.kernels.parts.rows import ceil_div
from minfer_kernels.cpu.kernels.parts.windows import row_sharing, window_functions
from minfer_kernels.cpu.simd import inline, larger, load_f32, load_i64, smaller, store_f32, store_i64

# Where the parts of a thread's scratch begin; `scratch.fixed_bytes` adds them up.
ROW_TABLE = 8 * BLOCK
COLUMN_TABLE = 16 * BLOCK
STAGED = 24 * BLOCK
# Of a query's 64 bytes of state: M and L and the factors of the last merge, the row's length, and for the first query
# of a group the longest and the shortest length in it.
LENGTH, LONGEST, SHORTEST = 16, 24, 32
# The maximum and sum of a query's block.
BLOCK_STATE = 40


@inline
def value_row(head_dim: int) -> int:
    """Bytes of a head's values in scratch."""
    return ceil_div(head_dim, COLUMNS) * 4 * COLUMNS


@inline
def element_row(head_dim: int) -> int:
    """Bytes of a query's elements in scratch."""
    return ceil_div(head_dim, 16) * 64


@inline
def scales_at(s: int, head_dim: int) -> int:
    """The scales of the staged keys, in the scratch at s; those of the values follow."""
    return s + STAGED + BLOCK * value_row(head_dim)


@inline
def scale_bytes_of(head_dim: int) -> int:
    """Bytes of the scales of a block."""
    return 16 * BLOCK * ceil_div(ceil_div(head_dim, 32), 4)


@inline
def group_values_at(s: int, head_dim: int) -> int:
    """The values of a group of queries over one block."""
    return scales_at(s, head_dim) + 2 * scale_bytes_of(head_dim)


@inline
def scores_at(s: int, head_dim: int) -> int:
    """The scores of every query; elements, results and states follow."""
    return group_values_at(s, head_dim) + 4 * value_row(head_dim)


@inline
def elements_at(s: int, head_dim: int, slots: int) -> int:
    """The elements of every query."""
    return scores_at(s, head_dim) + 4 * BLOCK * slots


@inline
def results_at(s: int, head_dim: int, slots: int) -> int:
    """The values of every query, merged so far."""
    return elements_at(s, head_dim, slots) + element_row(head_dim) * slots


@inline
def states_at(s: int, head_dim: int, slots: int) -> int:
    """The states of every query."""
    return results_at(s, head_dim, slots) + value_row(head_dim) * slots


def tile_of(mode: str, cell_type: str, write: Callable[..., None]) -> Callable[..., None]:
    """Attention of rows [row, stop) and `heads` query heads over blocks [first, end), by any number of queries.

    Unless `split`, heads end with `write`. Otherwise `first` is the only block and each head leaves its maximum, sum
    and values at `partials`.
    """
    window = window_functions(mode)
    cells = cells_of(cell_type)
    passes = {n: (_block_pass(mode, cells, n)) for n in QUERY_COUNTS}
    one, two, four = (passes[n] for n in QUERY_COUNTS)
    start_tile = _start_tile(mode, cells)
    longest_sharing, _ = row_sharing(window)
    length = window.length

    @inline
    def tile(
        q: int, k: int, v: int, out: int, positions: int, window: int, s: int, q_stride: int, q_head_stride: int,
        out_stride: int, out_head_stride: int, cell_bytes: int, width: int, head_dim: int, scale: Any, kv_head: int,
        heads: int, slots: int, row: int, stop: int, first: int, end: int, split: bool, partials: int,
        partial_row: int, partial_head: int,
    ) -> None:  # fmt: skip
        n = (stop - row) * heads
        longest = longest_sharing(window, positions, row, stop)
        together = 4 if n > 2 else n
        start_tile(
            q, positions, window, s, q_stride, q_head_stride, head_dim, heads, slots, row, n, together
        )  # fmt: skip
        attended = length(window, positions, longest)
        for block in range(first * BLOCK, smaller(attended, end * BLOCK), BLOCK):
            held = smaller(BLOCK, attended - block)
            if n == 1:
                one(
                    k, v, positions, window, s, cell_bytes, width, head_dim, scale, kv_head, heads, slots, row, longest,
                    n, block, held, split, partials, partial_row, partial_head,
                )  # fmt: skip
            elif n == 2:
                two(
                    k, v, positions, window, s, cell_bytes, width, head_dim, scale, kv_head, heads, slots, row, longest,
                    n, block, held, split, partials, partial_row, partial_head,
                )  # fmt: skip
            else:
                four(
                    k, v, positions, window, s, cell_bytes, width, head_dim, scale, kv_head, heads, slots, row, longest,
                    n, block, held, split, partials, partial_row, partial_head,
                )  # fmt: skip
        if not split:
            results, states = results_at(s, head_dim, slots), states_at(s, head_dim, slots)
            for m in range(n):
                to = out + (row + m // heads) * out_stride + m % heads * out_head_stride
                write(results + value_row(head_dim) * m, states + 64 * m, to, head_dim)

    return tile


def _start_tile(mode: str, cells: Cells) -> Callable[..., None]:
    """Queries and their lengths made ready, nothing attended."""
    length, start_query = window_functions(mode).length, cells.start_query

    @inline
    def start_tile(
        q: int, positions: int, window: int, s: int, q_stride: int, q_head_stride: int, head_dim: int, heads: int,
        slots: int, row: int, n: int, together: int,
    ) -> None:  # fmt: skip
        elements, results = elements_at(s, head_dim, slots), results_at(s, head_dim, slots)
        states = states_at(s, head_dim, slots)
        for m in range(n):
            query = q + (row + m // heads) * q_stride + m % heads * q_head_stride
            start_query(query, head_dim, elements + element_row(head_dim) * m)
            start_state(states + 64 * m, results + value_row(head_dim) * m, value_row(head_dim) // 64)
            store_i64(states + 64 * m + LENGTH, length(window, positions, row + m // heads))
        for m in range(0, n, together):
            low = load_i64(states + 64 * m + LENGTH)
            high = low
            for other in range(m + 1, smaller(m + together, n)):
                own = load_i64(states + 64 * other + LENGTH)
                low, high = smaller(low, own), larger(high, own)
            store_i64(states + 64 * m + LONGEST, high)
            store_i64(states + 64 * m + SHORTEST, low)
        for i in range(BLOCK):
            store_i64(s + ROW_TABLE + 8 * i, i * element_row(head_dim))
            store_i64(s + COLUMN_TABLE + 8 * i, i * 4 * COLUMNS)

    return start_tile


def _block_pass(mode: str, cells: Cells, queries: int) -> Callable[..., None]:
    """One block for n queries, `queries` at a time: scores, weights, then values."""
    locate = _locate(mode)
    scores_of, stage_keys, element = cells.scores(queries), cells.stage_keys, cells.element
    values_of = _block_values(cells, queries)

    @inline
    def block_pass(
        k: int, v: int, positions: int, window: int, s: int, cell_bytes: int, width: int, head_dim: int, scale: Any,
        kv_head: int, heads: int, slots: int, row: int, longest: int, n: int, block: int, held: int, split: bool,
        partials: int, partial_row: int, partial_head: int,
    ) -> None:  # fmt: skip
        few = reads_cells(n, head_dim)
        staged, key_scales = s + STAGED, scales_at(s, head_dim)
        value_scales = key_scales + scale_bytes_of(head_dim)
        scores, states = scores_at(s, head_dim), states_at(s, head_dim, slots)
        head = kv_head * head_dim * element
        locate(window, positions, longest, block, held, cell_bytes, s)
        scale_offset = width + kv_head * (head_dim // 16)
        # The next block follows in the cells as a rule; elsewhere the hint is wasted.
        ahead = BLOCK * cell_bytes
        stage_keys(k + head, k + scale_offset, s, ahead, held, head_dim, few, staged, key_scales, value_scales)
        scores_of(
            elements_at(s, head_dim, slots), element_row(head_dim), k + head, s, ahead, s + ROW_TABLE, staged,
            key_scales, head_dim, few, scale, n, block, held, scores, states,
        )  # fmt: skip
        for m in range(n):
            state = states + 64 * m
            count = smaller(held, load_i64(state + LENGTH) - block)
            if count > 0:
                block_weights(scores + 4 * BLOCK * m, count, state + BLOCK_STATE)
                if split:
                    to = partials + m // heads * partial_row + m % heads * partial_head
                    store_f32(to, load_f32(state + BLOCK_STATE))
                    store_f32(to + 4, load_f32(state + BLOCK_STATE + 4))
                else:
                    merge_state(state, state + BLOCK_STATE)
        values_of(
            v + head, v + scale_offset, s, ahead, head_dim, few, staged, value_scales, heads, slots, n, block, held,
            split, partials, partial_row, partial_head,
        )  # fmt: skip

    return block_pass


def _locate(mode: str) -> Callable[..., None]:
    cell, run_left = window_functions(mode).cell, window_functions(mode).run_left

    @inline
    def locate(window: int, positions: int, row: int, block: int, held: int, cell_bytes: int, table: int) -> None:
        """The offset of every position's cell, the last one again up to a whole vector of cells."""
        i = 0
        while i < held:
            offset = cell(window, row, block + i) * cell_bytes
            end = smaller(held, i + run_left(window, positions, row, block + i))
            while i < end:
                store_i64(table + 8 * i, offset)
                offset += cell_bytes
                i += 1
        last = load_i64(table + 8 * (held - 1))
        for j in range(held, ceil_div(held, 16) * 16):
            store_i64(table + 8 * j, last)

    return locate


def _block_values(cells: Cells, queries: int) -> Callable[..., None]:
    """A block's values for every query, column by column, merged into results or left as partial ones."""
    stage_values, element = cells.stage_values, cells.element
    direct, direct_one = value_tile(cells.value_type, queries), value_tile(cells.value_type, 1)
    from_columns, from_columns_one = value_tile("f32", queries), value_tile("f32", 1)

    @inline
    def block_values(
        values: int, scales: int, s: int, ahead: int, head_dim: int, few: bool, staged: int, value_scales: int,
        heads: int, slots: int, n: int, block: int, held: int, split: bool, partials: int, partial_row: int,
        partial_head: int,
    ) -> None:  # fmt: skip
        weights, results, states = scores_at(s, head_dim), results_at(s, head_dim, slots), states_at(s, head_dim, slots)
        mine, row = group_values_at(s, head_dim), value_row(head_dim)
        scale_stride = ceil_div(ceil_div(head_dim, 32), 4) * 16
        stage_values(values, scales, s, ahead, held, head_dim, few, staged, value_scales)
        for column in range(row // (4 * COLUMNS)):
            source, at = values + COLUMNS * element * column, value_scales + COLUMNS // 32 * 4 * column
            column_at, to = staged + 4 * COLUMNS * BLOCK * column, 4 * COLUMNS * column
            for m in range(0, n, queries):
                most = smaller(held, load_i64(states + 64 * m + LONGEST) - block)
                if most > 0:
                    together = larger(0, smaller(held, load_i64(states + 64 * m + SHORTEST) - block))
                    own = weights + 4 * BLOCK * m
                    clear(mine, VECTORS * queries)
                    if few:
                        direct(own, 4 * BLOCK, source, s, ahead, at, scale_stride, 0, together, mine, 4 * COLUMNS)
                    else:
                        from_columns(
                            own, 4 * BLOCK, column_at, s + COLUMN_TABLE, 0, at, scale_stride, 0, together, mine,
                            4 * COLUMNS,
                        )  # fmt: skip
                    for i in range(smaller(queries, n - m)):
                        state, value = states + 64 * (m + i), mine + 4 * COLUMNS * i
                        count = smaller(held, load_i64(state + LENGTH) - block)
                        if count > together:
                            alone = own + 4 * BLOCK * i
                            if few:
                                direct_one(alone, 0, source, s, 0, at, scale_stride, together, count, value, 0)
                            else:
                                from_columns_one(
                                    alone, 0, column_at, s + COLUMN_TABLE, 0, at, scale_stride, together, count, value,
                                    0,
                                )  # fmt: skip
                        if count > 0 and split:
                            place = partials + (m + i) // heads * partial_row + (m + i) % heads * partial_head
                            copy(value, place + 64 + to, VECTORS)
                        elif count > 0:
                            merge_values(state, value, results + row * (m + i) + to, VECTORS)

    return block_values
