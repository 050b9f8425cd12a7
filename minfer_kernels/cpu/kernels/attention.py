"""Softmax attention over KV cells; `minfer_kernels.cpu.attention_blocks` states the order of its arithmetic.

`attend[window,cells]`: the window mode (`causal`, `span`, `map`) and the cell type (`f32`, `f16`).

A work item is a tile of rows and one KV head with the query heads that share it; when items are few against
the threads, one query head. Rows of a tile that share a window also share each block of K and V, widened into
scratch once; a block that few queries read is read from its cells directly. None of this touches a result.
"""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.attention_blocks import (
    NEGATIVE_INFINITY,
    block_scores,
    block_weights,
    merge_state,
    merge_values,
    start_state,
)
from minfer_kernels.cpu.attention_scratch import BLOCK, QUERIES
from minfer_kernels.cpu.kernel import F32, Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.rows import ceil_div
from minfer_kernels.cpu.simd import (
    f32,
    inline,
    larger,
    load_f16x8,
    load_f16x8_partial,
    load_f32,
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    smaller,
    splat_f32x8,
    store_f32x8,
    store_f32x8_partial,
)
from minfer_kernels.cpu.windows import window_functions

# Fewer queries than this read a block from its cells: widening it first would not pay.
QUERIES_WORTH_STAGING = 3


@inline
def load_f32x8_start(p: int, n: int) -> Any:
    """The first n float32, zeros in the other lanes."""
    return load_f32x8_partial(p, n, 0.0)


@inline
def copy_query(query: int, out: int, head_dim: int) -> None:
    """A head's elements, padded with zeros to whole vectors."""
    for i in range(0, head_dim, 8):
        store_f32x8(out + 4 * i, load_f32x8_partial(query + 4 * i, smaller(8, head_dim - i), 0.0))


@inline
def write_result(values: int, state: int, out: int, head_dim: int) -> None:
    """O / L, or zeros where the window was empty."""
    total = load_f32(state + 4)
    empty = load_f32(state) == NEGATIVE_INFINITY and total == 0.0
    divisor = splat_f32x8(f32(1.0) if empty else total)
    for i in range(0, head_dim, 8):
        store_f32x8_partial(out + 4 * i, smaller(8, head_dim - i), load_f32x8(values + 4 * i) / divisor)


@kernel_family
def attend(mode: str, cell_type: str) -> Kernel:
    """Attention of rows q `[rows, n_heads, head_dim]` over regions k and v of cells `[n_kv_heads * head_dim]`."""
    length, cell, run_left, shares = window_functions(mode)
    load, load_start, element = {
        "f32": (load_f32x8, load_f32x8_start, 4),
        "f16": (load_f16x8, load_f16x8_partial, 2),
    }[cell_type]

    @inline
    def stage(
        region: int, cell_bytes: int, window: int, row: int, block: int, count: int, head_dim: int, to: int
    ) -> None:
        """Cells of logical positions block to block + count, widened, one after the other."""
        padded = ceil_div(head_dim, 8) * 32
        whole = head_dim // 8 * 8
        for i in range(count):
            source = region + cell(window, row, block + i) * cell_bytes
            target = to + i * padded
            for j in range(0, whole, 8):
                store_f32x8(target + 4 * j, load(source + element * j))
            if whole != head_dim:
                store_f32x8(target + 4 * whole, load_start(source + element * whole, head_dim - whole))

    @inline
    def read_directly(
        window: int, positions: int, row: int, block: int, count: int, head_dim: int, queries: int
    ) -> bool:
        """Whether queries read the block from its cells."""
        in_one_run = run_left(window, positions, row, block) >= count
        return in_one_run and head_dim % 8 == 0 and (element == 4 or queries < QUERIES_WORTH_STAGING)

    @kernel
    def attend(
        q: Ptr, k: Ptr, v: Ptr, out: Ptr, rows_at: Ptr, positions: Ptr, window: Ptr, scratch: Ptr,
        q_stride: Int, q_head_stride: Int, out_stride: Int, out_head_stride: Int, cell_bytes: Int,
        n_heads: Int, n_kv_heads: Int, head_dim: Int, scale: F32, scratch_stride: Int, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        rows = load_i32(rows_at)
        group = n_heads // n_kv_heads
        tile_rows = larger(1, QUERIES // group)
        tiles = ceil_div(rows, tile_rows)
        heads = group
        if tiles * n_kv_heads < 4 * n_threads and tiles * n_kv_heads % n_threads != 0:
            heads = 1
        units = n_heads // heads
        steps = ceil_div(head_dim, 8)
        queries = larger(QUERIES, group)
        staged = scratch + tid * scratch_stride
        scores = staged + 32 * BLOCK * steps
        elements = scores + 4 * BLOCK * queries
        results = elements + 32 * steps * queries
        states = results + 32 * steps * queries
        # Round robin: under a causal window later tiles take longer.
        for item in range(tid, tiles * units, n_threads):
            tile, first_head = item // units, item % units * heads
            head_at = first_head // group * head_dim * element
            row, tile_end = tile * tile_rows, smaller((tile + 1) * tile_rows, rows)
            while row < tile_end:
                longest, stop = row, row + 1
                while stop < tile_end and shares(window, longest, stop):
                    if length(window, positions, stop) > length(window, positions, longest):
                        longest = stop
                    stop += 1
                n = (stop - row) * heads
                for m in range(n):
                    head = first_head + m % heads
                    query = q + (row + m // heads) * q_stride + head * q_head_stride
                    copy_query(query, elements + 32 * steps * m, head_dim)
                    start_state(states + 16 * m, results + 32 * steps * m, steps)
                positions_seen = length(window, positions, longest)
                for block in range(0, positions_seen, BLOCK):
                    held = smaller(BLOCK, positions_seen - block)
                    direct = read_directly(window, positions, longest, block, held, head_dim, n)
                    cell_at = cell(window, longest, block) * cell_bytes + head_at
                    if not direct:
                        stage(k + head_at, cell_bytes, window, longest, block, held, head_dim, staged)
                    for m in range(n):
                        count = smaller(BLOCK, length(window, positions, row + m // heads) - block)
                        if count > 0:
                            query, score = elements + 32 * steps * m, scores + 4 * BLOCK * m
                            if direct:
                                most = block_scores(
                                    load, element, query, k + cell_at, cell_bytes, count, steps, scale, score
                                )
                            else:
                                most = block_scores(
                                    load_f32x8, 4, query, staged, 32 * steps, count, steps, scale, score
                                )
                            merge_state(states + 16 * m, most, block_weights(score, count, most))
                    if not direct:
                        stage(v + head_at, cell_bytes, window, longest, block, held, head_dim, staged)
                    for m in range(n):
                        count = smaller(BLOCK, length(window, positions, row + m // heads) - block)
                        if count > 0:
                            state, result = states + 16 * m, results + 32 * steps * m
                            weights = scores + 4 * BLOCK * m
                            if direct:
                                merge_values(
                                    load, element, weights, v + cell_at, cell_bytes, count, steps, state, result
                                )
                            else:
                                merge_values(load_f32x8, 4, weights, staged, 32 * steps, count, steps, state, result)
                for m in range(n):
                    head = first_head + m % heads
                    to = out + (row + m // heads) * out_stride + head * out_head_stride
                    write_result(results + 32 * steps * m, states + 16 * m, to, head_dim)
                row = stop

    return attend
