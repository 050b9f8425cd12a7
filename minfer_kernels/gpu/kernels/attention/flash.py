"""Attention for many rows: tiles of rows of one sequence over blocks of cells, with online softmax.

Query, weights and values go into the matrix products as float16, sums are float32; a packed cell is its quants times
its scales, rounded to float16, and the query over packed cells is that of Q8A32. Float32 cells stay float32.
A row's order: blocks of BLOCK positions from 0, ascending.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.attention.query import rounded_query
from minfer_kernels.gpu.kernels.cells import F32, Q8_0, cell_row, load_elements, load_quants, load_scales
from minfer_kernels.gpu.kernels.lanes import float_precision
from minfer_kernels.gpu.kernels.windows import block_cells, row_length, row_runs

LARGEST_SCALE = tl.constexpr(515.5)
"""Of packed blocks: 127 times the next float16 is beyond float16."""

# Constants reach a kernel as Python values.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAssignmentType=false


@triton.jit
def flash(
    q, k, v, out, positions, window, table, q_stride, out_stride, cell_bytes, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, LAYOUT: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Query head `program_id(1)` of the tiles of `table`: `program_id(0)` of them, counted from the end, and so on.

    Later tiles of a prompt attend more cells, so they begin first.
    """
    count = tl.load(table)
    for i in range(tl.program_id(0), count, tl.num_programs(0)):
        entry = table + 1 + 2 * (count - 1 - i)
        _tile(
            q, k, v, out, positions, window, tl.load(entry).to(tl.int64), tl.load(entry + 1), q_stride, out_stride,
            cell_bytes, scale, KV_HEADS, GROUP, HEAD_DIM, MODE, LAYOUT, TILE, BLOCK, STAGES, PTX,
        )  # fmt: skip


@triton.jit
def _tile(
    q, k, v, out, positions, window, row, rows, q_stride, out_stride, cell_bytes, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, LAYOUT: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    r, d = tl.arange(0, TILE), tl.arange(0, max(16, triton.next_power_of_2(HEAD_DIM)))
    mask = (r < rows)[:, None] & (d < HEAD_DIM)[None, :]
    x = tl.load(q + row * q_stride + r[:, None] * q_stride + head * HEAD_DIM + d[None, :], mask=mask, other=0.0)
    query = _rounded(x, LAYOUT)
    # Every row's window is the one before it and one cell more.
    shortest = row_length(window, positions, row, MODE)
    longest = shortest + rows - 1
    lengths = tl.minimum(shortest + r, longest)
    runs = row_runs(window, row + rows - 1, MODE)
    whole = shortest // BLOCK * BLOCK
    values = _attended(
        query, k, v, runs, lengths, whole, longest, head // GROUP, cell_bytes, scale,
        False, KV_HEADS, HEAD_DIM, MODE, LAYOUT, BLOCK, STAGES, PTX,
    )  # fmt: skip
    if LAYOUT != Q8_0:  # noqa: SIM102
        # Where not all rows attend a cell, 0 times a value that isn't finite got into those that don't.
        if tl.max((~(tl.abs(values) < float("inf"))).to(tl.int32)) > 0:
            values = _attended(
                query, k, v, runs, lengths, whole, longest, head // GROUP, cell_bytes, scale,
                True, KV_HEADS, HEAD_DIM, MODE, LAYOUT, BLOCK, STAGES, PTX,
            )  # fmt: skip
    tl.store(out + row * out_stride + r[:, None] * out_stride + head * HEAD_DIM + d[None, :], values, mask=mask)


@triton.jit
def _attended(
    query, k, v, runs, lengths, whole, longest, kv_head, cell_bytes, scale,
    ODD: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, LAYOUT: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """The rows' results; positions up to `whole` are attended by all of them. ODD: as `_blocks` has it, all through."""
    largest = tl.full([query.shape[0]], float("-inf"), tl.float32)
    total = tl.zeros([query.shape[0]], tl.float32)
    values = tl.zeros([query.shape[0], query.shape[1]], tl.float32)
    if ODD:
        largest, total, values, _ = _blocks(
            largest, total, values, query, k, v, runs, lengths, 0, longest, whole, longest, kv_head, cell_bytes, scale,
            True, True, KV_HEADS, HEAD_DIM, MODE, LAYOUT, BLOCK, STAGES, PTX,
        )  # fmt: skip
    else:
        largest, total, values, _ = _blocks(
            largest, total, values, query, k, v, runs, lengths, 0, whole, whole, longest, kv_head, cell_bytes, scale,
            False, False, KV_HEADS, HEAD_DIM, MODE, LAYOUT, BLOCK, STAGES, PTX,
        )  # fmt: skip
        largest, total, values, odd = _blocks(
            largest, total, values, query, k, v, runs, lengths, whole, longest, whole, longest, kv_head, cell_bytes,
            scale, True, False, KV_HEADS, HEAD_DIM, MODE, LAYOUT, BLOCK, STAGES, PTX,
        )  # fmt: skip
        if LAYOUT == Q8_0:  # noqa: SIM102 a constant, which leaves the rest out
            if odd > 0:
                values = _with_odd_values(
                    values, v, runs, lengths, whole, longest, kv_head, cell_bytes, KV_HEADS, HEAD_DIM, MODE, LAYOUT
                )
    return values / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def _blocks(
    largest, total, values, query, k, v, runs, lengths, first, last, whole, longest, kv_head, cell_bytes, scale,
    MASKED: tl.constexpr, ODD: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr,
    LAYOUT: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Blocks from position `first` to `last`; without MASKED all rows attend all of them.

    ODD: from `whole` on, values that aren't finite reach the rows that attend them and no others. It takes registers
    and time, so it is for tiles where it matters. Packed cells instead have few scales to look at: with MASKED, values
    whose scale is out of bounds are left out, and the last result is 1 where there are some.
    """
    odd = tl.full([], 0, tl.int32)
    for start in tl.range(first, last, BLOCK, num_stages=STAGES):
        at = start + tl.arange(0, BLOCK)
        cells = block_cells(runs, start, BLOCK, MODE)
        keys, _ = _cells(
            cell_row(k, cells, cell_bytes), at < longest, kv_head, MASKED, False, KV_HEADS, HEAD_DIM, LAYOUT
        )
        scores = scale * tl.dot(query, tl.trans(keys), input_precision=float_precision(PTX))
        if MASKED:
            scores = tl.where(at[None, :] < lengths[:, None], scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        # A row of no cells has no largest score.
        shift = tl.where(now == float("-inf"), 0.0, now) if MASKED else now
        weights, fade = tl.exp2(scores - shift[:, None]), tl.exp2(largest - shift)
        total = total * fade + tl.sum(weights, 1)
        largest = now
        tile, unfit = _cells(
            cell_row(v, cells, cell_bytes), at < longest, kv_head, MASKED, MASKED, KV_HEADS, HEAD_DIM, LAYOUT
        )
        if ODD:
            tile = tl.where((tl.abs(tile) < float("inf")) | (start < whole), tile, 0.0)
        values = tl.dot(weights.to(tile.dtype), tile, values * fade[:, None], input_precision=float_precision(PTX))
        if ODD:
            values = _with_odd_values(
                values, v, runs, lengths, tl.maximum(start, whole), tl.minimum(start + BLOCK, longest), kv_head,
                cell_bytes, KV_HEADS, HEAD_DIM, MODE, LAYOUT,
            )  # fmt: skip
        if MASKED and LAYOUT == Q8_0:
            odd = tl.maximum(odd, tl.max(unfit))
    return largest, total, values, odd


@triton.jit
def _with_odd_values(
    values, v, runs, lengths, first, last, kv_head, cell_bytes,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, LAYOUT: tl.constexpr,
):  # fmt: skip
    """`values` plus, of positions `first` to `last`, what isn't finite, in the rows that attend the position."""
    for position in range(first, last):
        row = cell_row(v, block_cells(runs, position, 1, MODE), cell_bytes)
        there = tl.full([1], True, tl.int1)
        tile, _ = _cells(row, there, kv_head, False, False, KV_HEADS, HEAD_DIM, LAYOUT)
        odd = tl.where(tl.abs(tile) < float("inf"), 0.0, tile.to(tl.float32))
        values = tl.where(position < lengths[:, None], values + odd, values)
    return values


@triton.jit
def _cells(
    rows, inside, kv_head,
    MASKED: tl.constexpr, FIT: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, LAYOUT: tl.constexpr,
):  # fmt: skip
    """A head of `rows` `[BLOCK, padded HEAD_DIM]`, float16 or float32; with MASKED zeros where not `inside`.

    FIT: packed blocks with values beyond float16 are zeros too, and the second result, int32, is 1 for them.
    """
    WIDTH: tl.constexpr = KV_HEADS * HEAD_DIM
    COLUMNS: tl.constexpr = max(16, triton.next_power_of_2(HEAD_DIM))
    d = tl.arange(0, COLUMNS)[None, :]
    mask = (inside[:, None] | (not MASKED)) & (d < HEAD_DIM)
    unfit = 0
    if LAYOUT == Q8_0:
        quants = load_quants(rows[:, None], kv_head * HEAD_DIM + d, mask)
        b = tl.arange(0, COLUMNS // 32)[None, :]
        some = (inside[:, None] | (not MASKED)) & (b < HEAD_DIM // 32)
        scales = load_scales(rows[:, None], kv_head * (HEAD_DIM // 32) + b, WIDTH, some).to(tl.float16)
        if FIT:
            fit = tl.abs(scales) <= LARGEST_SCALE
            scales, unfit = tl.where(fit, scales, 0.0), (~fit).to(tl.int32)
        blocks = tl.reshape(quants, [rows.shape[0], COLUMNS // 32, 32]).to(tl.float16) * scales[:, :, None]
        tile = tl.reshape(blocks, [rows.shape[0], COLUMNS])
    else:
        tile = load_elements(rows[:, None], kv_head * HEAD_DIM + d, WIDTH, mask, LAYOUT)
        if LAYOUT != F32:
            tile = tile.to(tl.float16)
    return tile, unfit


@triton.jit
def _rounded(x, LAYOUT: tl.constexpr):
    """The query as the products take it."""
    if LAYOUT == Q8_0:
        quants, scales = rounded_query(tl.reshape(x, [x.shape[0] * x.shape[1] // 32, 32]))
        x = tl.reshape(quants.to(tl.float32) * scales[:, None], [x.shape[0], x.shape[1]])
    return x if LAYOUT == F32 else x.to(tl.float16)
