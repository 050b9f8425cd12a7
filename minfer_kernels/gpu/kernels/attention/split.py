"""Attention for a few rows: each row's window in parts of fixed size, attended side by side and merged in order.

A part is SPLIT logical positions, counted from 0 of the row's window, so a row's bits depend on nothing but its own
window: not on other rows, nor on how long theirs are. The query heads of a KV head share the loads of its cells.

Order of a part: blocks of BLOCK positions ascending, with online softmax in base 2 (`scale` holds the factor log2 e).
Matrix products take float16 and sum in float32; a float32 operand goes in as two float16, the second what rounding left
of the first, so that queries and weights keep 22 bits. Over float32 cells they take float32 (on NVIDIA devices as three
products of its TF32 parts). Over packed cells the query has the bits of Q8A32, and a score is the sum over blocks of
32, ascending, of the integer product times both scales; values are integers, multiplied with weights times the value's
scale over the largest scale of the block.

`merge` then takes the parts in order: see there. FINISH leaves it to the program that ends a row's and KV head's last
part; the bits are those of `merge` as a launch of its own.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.attention.block import add_values, block_scores
from minfer_kernels.gpu.kernels.attention.geometry import columns_of, folded, pieces_of, rows_of, tile_of
from minfer_kernels.gpu.kernels.attention.merge import merge_parts, parts_of, store_heads
from minfer_kernels.gpu.kernels.attention.query import load_query
from minfer_kernels.gpu.kernels.cells import cell_row
from minfer_kernels.gpu.kernels.windows import block_cells, row_length, row_runs

# Constants reach a kernel as Python values.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAssignmentType=false


@triton.jit(do_not_specialize=["base"])
def split(
    q, k, v, out, positions, window, rows_at, listed, partials, softmax, arrived, base, q_stride, out_stride,
    cell_bytes, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, LAYOUT: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK: tl.constexpr, MATRIX: tl.constexpr, PTX: tl.constexpr,
    LISTED: tl.constexpr, FINISH: tl.constexpr, QUANTIZE: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Part `program_id(0)` of KV head `program_id(1)` for the rows of `slot_row`.

    `q` float32 `[rows, heads, HEAD_DIM]`, `k` and `v` bytes of cells, `partials` float32
    `[SLOTS, heads, parts, HEAD_DIM]` and `softmax` `[..., 2]` (maximum, sum), `arrived` int32 zeros
    `[SLOTS, KV_HEADS]`, left as zeros.
    """
    count = slot_count(rows_at, base, SLOTS)
    if LISTED:
        # What is hoisted out of this loop of mostly one turn is held throughout the part: in up to 94 registers.
        for slot in tl.range(tl.program_id(2), count, tl.num_programs(2), disable_licm=True):
            _slot(
                q, k, v, out, positions, window, slot_row(listed, base, slot, LISTED), slot, partials, softmax, arrived,
                q_stride, out_stride, cell_bytes, scale, KV_HEADS, GROUP, HEAD_DIM, MODE, LAYOUT, SPLIT, BLOCK, MATRIX,
                PTX, FINISH, QUANTIZE,
            )  # fmt: skip
    else:
        slot = tl.program_id(2)
        if slot < count:
            _slot(
                q, k, v, out, positions, window, slot_row(listed, base, slot, LISTED), slot, partials, softmax, arrived,
                q_stride, out_stride, cell_bytes, scale, KV_HEADS, GROUP, HEAD_DIM, MODE, LAYOUT, SPLIT, BLOCK, MATRIX,
                PTX, FINISH, QUANTIZE,
            )  # fmt: skip


@triton.jit
def _slot(
    q, k, v, out, positions, window, row, slot, partials, softmax, arrived, q_stride, out_stride, cell_bytes, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, LAYOUT: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK: tl.constexpr, MATRIX: tl.constexpr, PTX: tl.constexpr,
    FINISH: tl.constexpr, QUANTIZE: tl.constexpr,
):  # fmt: skip
    _part(
        q, k, v, positions, window, row, slot, partials, softmax, q_stride, cell_bytes, scale,
        KV_HEADS, GROUP, HEAD_DIM, MODE, LAYOUT, SPLIT, BLOCK, MATRIX, PTX,
    )  # fmt: skip
    if FINISH:
        _finish(
            out, positions, window, row, slot, partials, softmax, arrived, out_stride,
            KV_HEADS, GROUP, HEAD_DIM, MODE, SPLIT, QUANTIZE,
        )  # fmt: skip


@triton.jit
def slot_count(rows_at, base, SLOTS: tl.constexpr):
    """Slots with a row: those of the step's rows, or listed ones, that begin at `base`."""
    return tl.minimum(tl.load(rows_at) - base, SLOTS)


@triton.jit
def slot_row(listed, base, slot, LISTED: tl.constexpr):
    """The row of a slot as int64."""
    row = tl.load(listed + base + slot) if LISTED else base + slot
    return row.to(tl.int64)


@triton.jit
def _part(
    q, k, v, positions, window, row, slot, partials, softmax, q_stride, cell_bytes, scale,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, LAYOUT: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK: tl.constexpr, MATRIX: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    part, kv_head = tl.program_id(0), tl.program_id(1)
    length = row_length(window, positions, row, MODE)
    first = part * SPLIT
    # The last program's part has no end, so that a window longer than the region is none the less read.
    last = tl.where(part == tl.num_programs(0) - 1, length, tl.minimum(first + SPLIT, length))
    if part < parts_of(length, SPLIT):
        query = load_query(q + row * q_stride + kv_head * (GROUP * HEAD_DIM), GROUP, HEAD_DIM, LAYOUT, MATRIX)
        runs = row_runs(window, row, MODE)
        largest = tl.full([rows_of(GROUP)], float("-inf"), tl.float32)
        total = tl.zeros([rows_of(GROUP)], tl.float32)
        values = ()
        for _ in tl.static_range(pieces_of(HEAD_DIM, LAYOUT)):
            values = values + (tl.zeros([tile_of(GROUP, LAYOUT), columns_of(HEAD_DIM, LAYOUT)], tl.float32),)
        for start in range(first, last, BLOCK):
            inside = start + tl.arange(0, BLOCK) < last
            cells = block_cells(runs, start, BLOCK, MODE)
            scores = scale * block_scores(
                query, cell_row(k, cells, cell_bytes), inside, kv_head,
                KV_HEADS, GROUP, HEAD_DIM, LAYOUT, MATRIX, PTX,
            )  # fmt: skip
            scores = tl.where(inside[None, :], scores, float("-inf"))
            now = tl.maximum(largest, tl.max(scores, 1))
            weights, fade = tl.exp2(scores - now[:, None]), tl.exp2(largest - now)
            total = total * fade + tl.sum(weights, 1)
            largest = now
            values = add_values(
                values, fade, weights, cell_row(v, cells, cell_bytes), inside, kv_head,
                KV_HEADS, HEAD_DIM, LAYOUT, PTX,
            )  # fmt: skip
        _store_part(values, largest, total, partials, softmax, slot, kv_head, part, KV_HEADS, GROUP, HEAD_DIM, LAYOUT)


@triton.jit
def _store_part(
    values, largest, total, partials, softmax, slot, kv_head, part,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, LAYOUT: tl.constexpr,
):  # fmt: skip
    g = tl.arange(0, rows_of(GROUP))
    head = (tl.cast(slot, tl.int64) * KV_HEADS + kv_head) * GROUP + g
    at = head * tl.num_programs(0) + part
    for b in tl.static_range(pieces_of(HEAD_DIM, LAYOUT)):
        d = b * columns_of(HEAD_DIM, LAYOUT) + tl.arange(0, columns_of(HEAD_DIM, LAYOUT))[None, :]
        tl.store(
            partials + at[:, None] * HEAD_DIM + d,
            folded(values[b], rows_of(GROUP)),
            mask=(g < GROUP)[:, None] & (d < HEAD_DIM),
        )
    tl.store(softmax + at * 2, largest, mask=g < GROUP)
    tl.store(softmax + at * 2 + 1, total, mask=g < GROUP)


@triton.jit
def _finish(
    out, positions, window, row, slot, partials, softmax, arrived, out_stride,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, SPLIT: tl.constexpr,
    QUANTIZE: tl.constexpr,
):  # fmt: skip
    part, kv_head = tl.program_id(0), tl.program_id(1)
    parts = tl.minimum(parts_of(row_length(window, positions, row, MODE), SPLIT), tl.num_programs(0))
    if part < parts:
        # Everybody's stores, then the count that publishes them.
        tl.debug_barrier()
        counter = arrived + slot * KV_HEADS + kv_head
        if tl.atomic_add(counter, 1, sem="acq_rel") == parts - 1:
            tl.debug_barrier()
            tl.store(counter, 0)
            head = kv_head * GROUP
            values = merge_parts(
                partials,
                softmax,
                slot,
                head,
                parts,
                tl.num_programs(0),
                KV_HEADS * GROUP,
                rows_of(GROUP),
                GROUP,
                HEAD_DIM,
            )
            store_heads(
                values, out, row * out_stride, head, rows_of(GROUP), GROUP, HEAD_DIM, KV_HEADS * GROUP, QUANTIZE
            )
