"""Softmax attention over KV cells; `parts/attention_blocks.py` states the order of its arithmetic.

`attend[window,cells]`: the window mode (`causal`, `span`, `map`) and the cell type (`f32`, `f16`).

A work item is a tile of rows and one KV head with the query heads that share it; when items are few against
the threads, one query head. Rows of a tile that share a window also share each block of K and V, widened into
scratch once; a block that few queries read is read from its cells directly. None of this touches a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.compiler.kernel import F32, Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.attention_blocks import (
    NEGATIVE_INFINITY,
    block_scores,
    block_weights,
    merge_state,
    merge_values,
    start_state,
)
from minfer_kernels.cpu.kernels.parts.attention_scratch import BLOCK, QUERIES
from minfer_kernels.cpu.kernels.parts.rows import ceil_div
from minfer_kernels.cpu.kernels.parts.windows import Window, window_functions
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

# Fewer queries than this read a block from its cells: widening it first would not pay.
QUERIES_WORTH_STAGING = 3


@inline
def load_f32x8_start(p: int, n: int) -> Any:
    """The first n float32, zeros in the other lanes."""
    return load_f32x8_partial(p, n, 0.0)


@inline
def start_query(query: int, head_dim: int, elements: int, state: int, result: int) -> None:
    """A head's elements padded with zeros to whole vectors, and nothing attended yet."""
    for i in range(0, head_dim, 8):
        store_f32x8(elements + 4 * i, load_f32x8_partial(query + 4 * i, smaller(8, head_dim - i), 0.0))
    start_state(state, result, ceil_div(head_dim, 8))


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
    tile = _tile_attention(mode, cell_type)

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
        # Round robin: under a causal window later tiles take longer.
        for item in range(tid, tiles * units, n_threads):
            first_row, head = item // units * tile_rows, item % units * heads
            tile(
                q + head * q_head_stride, k, v, out + head * out_head_stride, positions, window,
                scratch + tid * scratch_stride, q_stride, q_head_stride, out_stride, out_head_stride, cell_bytes,
                head_dim, scale, head // group, heads, larger(QUERIES, group),
                first_row, smaller(first_row + tile_rows, rows),
            )  # fmt: skip

    return attend


def _tile_attention(mode: str, cell_type: str) -> Callable[..., None]:
    """The attention of rows [row, end) and `heads` query heads of one KV head."""
    functions = window_functions(mode)
    length, cell, run_left, _ = functions
    score_queries, value_queries = _block_passes(functions)
    longest_sharing, sharing_end = _row_sharing(functions)
    load, load_start, element = {
        "f32": (load_f32x8, load_f32x8_start, 4),
        "f16": (load_f16x8, load_f16x8_partial, 2),
    }[cell_type]

    @inline
    def stage(
        region: int, cell_bytes: int, window: int, row: int, block: int, held: int, head_dim: int, to: int
    ) -> None:
        """Cells of `held` logical positions from `block` widened to `to`, one after the other."""
        padded = ceil_div(head_dim, 8) * 32
        whole = head_dim // 8 * 8
        for i in range(held):
            source, target = region + cell(window, row, block + i) * cell_bytes, to + i * padded
            for j in range(0, whole, 8):
                store_f32x8(target + 4 * j, load(source + element * j))
            if whole != head_dim:
                store_f32x8(target + 4 * whole, load_start(source + element * whole, head_dim - whole))

    @inline
    def tile(
        q: int, k: int, v: int, out: int, positions: int, window: int, staged: int, q_stride: int,
        q_head_stride: int, out_stride: int, out_head_stride: int, cell_bytes: int, head_dim: int, scale: Any,
        kv_head: int, heads: int, queries: int, first_row: int, end: int,
    ) -> None:  # fmt: skip
        steps = ceil_div(head_dim, 8)
        scores = staged + 32 * BLOCK * steps
        elements = scores + 4 * BLOCK * queries
        results = elements + 32 * steps * queries
        states = results + 32 * steps * queries
        keys, values = k + kv_head * head_dim * element, v + kv_head * head_dim * element
        row = first_row
        while row < end:
            stop = sharing_end(window, positions, row, end)
            longest = longest_sharing(window, positions, row, stop)
            n = (stop - row) * heads
            for m in range(n):
                query = q + (row + m // heads) * q_stride + m % heads * q_head_stride
                start_query(query, head_dim, elements + 32 * steps * m, states + 16 * m, results + 32 * steps * m)
            attended = length(window, positions, longest)
            for block in range(0, attended, BLOCK):
                held = smaller(BLOCK, attended - block)
                few = element == 4 or n < QUERIES_WORTH_STAGING
                if few and head_dim % 8 == 0 and run_left(window, positions, longest, block) >= held:
                    first = cell(window, longest, block) * cell_bytes
                    score_queries(
                        load, element, keys + first, cell_bytes, positions, window, block, row, heads, n, steps,
                        scale, elements, scores, states,
                    )  # fmt: skip
                    value_queries(
                        load, element, values + first, cell_bytes, positions, window, block, row, heads, n, steps,
                        scores, states, results,
                    )  # fmt: skip
                else:
                    stage(keys, cell_bytes, window, longest, block, held, head_dim, staged)
                    score_queries(
                        load_f32x8, 4, staged, 32 * steps, positions, window, block, row, heads, n, steps,
                        scale, elements, scores, states,
                    )  # fmt: skip
                    stage(values, cell_bytes, window, longest, block, held, head_dim, staged)
                    value_queries(
                        load_f32x8, 4, staged, 32 * steps, positions, window, block, row, heads, n, steps,
                        scores, states, results,
                    )  # fmt: skip
            for m in range(n):
                to = out + (row + m // heads) * out_stride + m % heads * out_head_stride
                write_result(results + 32 * steps * m, states + 16 * m, to, head_dim)
            row = stop

    return tile


def _block_passes(functions: Window) -> tuple[Callable[..., None], Callable[..., None]]:
    """One block for `n` queries, `heads` to a row from `row` on: the scores, then the values."""
    length = functions.length

    @inline
    def score_queries(
        load: Any, element: int, keys: int, stride: int, positions: int, window: int, block: int, row: int,
        heads: int, n: int, steps: int, scale: Any, elements: int, scores: int, states: int,
    ) -> None:  # fmt: skip
        """Weights of the block's cells for every query, and the state after it."""
        for m in range(n):
            count = smaller(BLOCK, length(window, positions, row + m // heads) - block)
            if count > 0:
                query, own = elements + 32 * steps * m, scores + 4 * BLOCK * m
                most = block_scores(load, element, query, keys, stride, count, steps, scale, own)
                merge_state(states + 16 * m, most, block_weights(own, count, most))

    @inline
    def value_queries(
        load: Any, element: int, values: int, stride: int, positions: int, window: int, block: int, row: int,
        heads: int, n: int, steps: int, scores: int, states: int, results: int,
    ) -> None:  # fmt: skip
        """The block's values merged into every query's result."""
        for m in range(n):
            count = smaller(BLOCK, length(window, positions, row + m // heads) - block)
            if count > 0:
                own, result = scores + 4 * BLOCK * m, results + 32 * steps * m
                merge_values(load, element, own, values, stride, count, steps, states + 16 * m, result)

    return score_queries, value_queries


def _row_sharing(functions: Window) -> tuple[Callable[..., int], Callable[..., int]]:
    """Which rows of a tile resolve the positions they have in common to the same cells."""
    length, _, _, shares = functions

    @inline
    def longest_sharing(window: int, positions: int, row: int, stop: int) -> int:
        """Of rows [row, stop) that share their cells, the one that attends the most."""
        longest = row
        for other in range(row + 1, stop):
            if length(window, positions, other) > length(window, positions, longest):
                longest = other
        return longest

    @inline
    def sharing_end(window: int, positions: int, row: int, end: int) -> int:
        """The end of the rows from `row` on that share their cells with all before them."""
        longest, stop = row, row + 1
        while stop < end and shares(window, longest, stop):
            if length(window, positions, stop) > length(window, positions, longest):
                longest = stop
            stop += 1
        return stop

    return longest_sharing, sharing_end
