"""Softmax attention over KV cells; `parts/attention/blocks.py` states the order of its arithmetic.

`attend[window,cells]`: the window mode (`causal`, `span`, `map`) and the cell type (`f32`, `f16`, `q8_0`).

Many rows: a work item is a tile of rows and one KV head with the query heads that share it, walking the blocks. A few
rows: an item is one block and some KV heads of the rows that share its cells; it leaves each head's result over the
block in shared memory, and whoever finishes the last block of those heads merges them. Threads take items as they come,
long ones first. None of this touches a result.
"""

from __future__ import annotations

from collections.abc import Callable

from minfer_kernels.cpu.compiler.kernel import F32, Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.attention.blocks import merge_state, merge_values, start_state, write_result
from minfer_kernels.cpu.kernels.parts.attention.scratch import (
    BLOCK,
    COUNTER_BYTES,
    COUNTER_STRIDE,
    QUERIES,
    SPLIT_ROWS,
)
from minfer_kernels.cpu.kernels.parts.attention.tile import tile_of, value_row
from minfer_kernels.cpu.kernels.parts.rows import ceil_div
from minfer_kernels.cpu.kernels.parts.windows import row_sharing, window_functions
from minfer_kernels.cpu.simd import inline, larger, load_i32, smaller
from minfer_kernels.cpu.simd.atomics import atomic_add, atomic_store

WriteResult = Callable[..., None]

# Fewer items than this for each thread leave some idle at the end.
ITEMS_PER_THREAD = 4
ALL_BLOCKS = 1 << 40


@kernel_family
def attend(mode: str, cell_type: str) -> Kernel:
    """Attention of rows q `[rows, n_heads, head_dim]` over regions k and v of cells `[n_kv_heads * head_dim]`."""
    return attention_kernel(mode, cell_type, write_result)


def attention_kernel(mode: str, cell_type: str, write: WriteResult) -> Kernel:
    """The kernel that ends every head with `write(values, state, out, head_dim)`."""
    tile, merge_heads = tile_of(mode, cell_type, write), _merge_heads(mode, write)
    count_blocks, find_block = _count_blocks(mode), _find_block(mode)
    _, sharing_end = row_sharing(window_functions(mode))

    @kernel
    def attend(
        q: Ptr, k: Ptr, v: Ptr, out: Ptr, rows_at: Ptr, positions: Ptr, window: Ptr, scratch: Ptr, shared: Ptr,
        q_stride: Int, q_head_stride: Int, out_stride: Int, out_head_stride: Int, cell_bytes: Int,
        n_heads: Int, n_kv_heads: Int, head_dim: Int, scale: F32, scratch_stride: Int, most_blocks: Int,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        rows = load_i32(rows_at)
        own = scratch + tid * scratch_stride
        group = n_heads // n_kv_heads
        slots = ceil_div(larger(QUERIES, group), 4) * 4
        blocks = count_blocks(window, positions, rows, most_blocks) if rows <= SPLIT_ROWS else 0
        split = blocks > 1
        tile_rows = rows_together(rows, group, n_kv_heads, n_threads)
        together = group if split else heads_together(rows, group, n_kv_heads, n_threads)
        shares = shares_of(n_kv_heads, blocks, n_threads) if split else n_heads // together
        heads = n_heads // shares
        items = (blocks if split else ceil_div(rows, tile_rows)) * shares
        partial = 64 + value_row(head_dim)
        partials = shared + COUNTER_BYTES
        item = atomic_add(shared, 1)
        while item < items:
            part, share = item // shares, item % shares
            if split:
                number, start, end, block, own_blocks = find_block(window, positions, rows, part)
                first, last = block, block + 1
            else:
                # Under a causal window later tiles take longer.
                number, own_blocks, block = 0, 0, 0
                start = (ceil_div(rows, tile_rows) - 1 - part) * tile_rows
                end = smaller(start + tile_rows, rows)
                first, last = 0, ALL_BLOCKS
            for head in range(share * heads, (share + 1) * heads, together):
                row = start
                while row < end:
                    stop = sharing_end(window, positions, row, end)
                    tile(
                        q + head * q_head_stride, k, v, out + head * out_head_stride, positions, window, own, q_stride,
                        q_head_stride, out_stride, out_head_stride, cell_bytes, n_kv_heads * head_dim, head_dim, scale,
                        head // group, together, slots, row, stop, first, last, split,
                        partials + ((row * n_heads + head) * most_blocks + block) * partial,
                        n_heads * most_blocks * partial, most_blocks * partial,
                    )  # fmt: skip
                    row = stop
            if split:
                done = shared + 2 * COUNTER_STRIDE + 8 * (number * shares + share)
                if atomic_add(done, 1) == own_blocks - 1:
                    atomic_store(done, 0)
                    merge_heads(
                        partials, positions, window, own, out, out_stride, out_head_stride, n_heads, head_dim,
                        most_blocks, start, end, share * heads, (share + 1) * heads,
                    )  # fmt: skip
            item = atomic_add(shared, 1)
        # Whoever leaves last makes the counters ready for the next call.
        if atomic_add(shared + COUNTER_STRIDE, 1) == n_threads - 1:
            atomic_store(shared, 0)
            atomic_store(shared + COUNTER_STRIDE, 0)

    return attend


@inline
def rows_together(rows: int, group: int, n_kv_heads: int, n_threads: int) -> int:
    """Rows of a tile: as many as share a staged block, fewer where threads would go without."""
    tile_rows = larger(1, QUERIES // group)
    while tile_rows > 4 and ceil_div(rows, tile_rows) * n_kv_heads < ITEMS_PER_THREAD * n_threads:
        tile_rows = (tile_rows + 1) // 2
    return tile_rows


@inline
def heads_together(rows: int, group: int, n_kv_heads: int, n_threads: int) -> int:
    """Query heads of an item: those of a KV head, or one where a single row leaves threads without."""
    alone = rows == 1 and n_kv_heads < ITEMS_PER_THREAD * n_threads and n_kv_heads % n_threads != 0
    return 1 if alone else group


@inline
def shares_of(n_kv_heads: int, blocks: int, n_threads: int) -> int:
    """Parts that the KV heads of a block are cut into: as many threads then merge, and none waits for work."""
    shares = smaller(n_kv_heads, larger(n_threads, ceil_div(ITEMS_PER_THREAD * n_threads, blocks)))
    return shares if n_kv_heads % shares == 0 else n_kv_heads


def _group_blocks(mode: str) -> Callable[..., int]:
    functions = window_functions(mode)
    length = functions.length
    longest_sharing, _ = row_sharing(functions)

    @inline
    def group_blocks(window: int, positions: int, row: int, stop: int) -> int:
        """Blocks of rows that share their cells; one where all windows are empty, so that somebody writes zeros."""
        return larger(1, ceil_div(length(window, positions, longest_sharing(window, positions, row, stop)), BLOCK))

    return group_blocks


def _count_blocks(mode: str) -> Callable[..., int]:
    group_blocks = _group_blocks(mode)
    _, sharing_end = row_sharing(window_functions(mode))

    @inline
    def count_blocks(window: int, positions: int, rows: int, most: int) -> int:
        """Blocks of all groups of rows that share their cells; 0 where one has more than `most`."""
        total, row = 0, 0
        while row < rows:
            stop = sharing_end(window, positions, row, rows)
            blocks = group_blocks(window, positions, row, stop)
            if blocks > most:
                return 0
            total += blocks
            row = stop
        return total

    return count_blocks


def _find_block(mode: str) -> Callable[..., tuple[int, int, int, int, int]]:
    group_blocks = _group_blocks(mode)
    _, sharing_end = row_sharing(window_functions(mode))

    @inline
    def find_block(window: int, positions: int, rows: int, part: int) -> tuple[int, int, int, int, int]:
        """The group that has the part-th block of all: its number, first row and end; which block, of how many."""
        number, row, block = 0, 0, part
        end = sharing_end(window, positions, row, rows)
        own_blocks = group_blocks(window, positions, row, end)
        while block >= own_blocks:
            block -= own_blocks
            number, row = number + 1, end
            end = sharing_end(window, positions, row, rows)
            own_blocks = group_blocks(window, positions, row, end)
        return number, row, end, block, own_blocks

    return find_block


def _merge_heads(mode: str, write: WriteResult) -> Callable[..., None]:
    length = window_functions(mode).length

    @inline
    def merge_heads(
        partials: int, positions: int, window: int, own: int, out: int, out_stride: int, out_head_stride: int,
        n_heads: int, head_dim: int, most_blocks: int, row: int, end: int, head: int, last: int,
    ) -> None:  # fmt: skip
        """Heads [head, last) of rows [row, end) from their blocks, ascending."""
        state, result, vectors = own, own + 64, value_row(head_dim) // 64
        partial = 64 + value_row(head_dim)
        for at in range(row, end):
            for h in range(head, last):
                start_state(state, result, vectors)
                for block in range(ceil_div(length(window, positions, at), BLOCK)):
                    found = partials + ((at * n_heads + h) * most_blocks + block) * partial
                    merge_state(state, found)
                    merge_values(state, found + 64, result, vectors)
                write(result, state, out + at * out_stride + h * out_head_stride, head_dim)

    return merge_heads
