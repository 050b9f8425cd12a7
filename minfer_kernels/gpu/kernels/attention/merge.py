"""The parts of a row's attention merged into its heads, and stored as numbers or in 8 bits."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.quantize import store_quantized
from minfer_kernels.gpu.kernels.windows import row_length

AT_ONCE = tl.constexpr(4)
"""Parts whose loads are in flight together."""

# Constants reach a kernel as Python values.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAssignmentType=false


@triton.jit
def parts_of(length, SPLIT: tl.constexpr):
    """Parts of a window; an empty one has a part too, of nothing."""
    return tl.maximum((length + SPLIT - 1) // SPLIT, 1)


@triton.jit
def merge_parts(
    partials, softmax, slot, head, parts, most_parts, N_HEADS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Heads `head` to `head` + HEADS as `[ROWS, padded HEAD_DIM]` float32.

    The largest maximum M of all parts; then over the parts ascending, each a fused multiply-add: the sum of weights and
    the values, times 2^(m - M). Values over the sum, and zeros where it is 0: a window of no cells.
    """
    h, d = tl.arange(0, ROWS), tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    rows = (tl.cast(slot, tl.int64) * N_HEADS + head + h) * most_parts
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    for first in range(0, parts, 16):
        part = first + tl.arange(0, 16)[None, :]
        live = (h < HEADS)[:, None] & (part < parts)
        found = tl.load(softmax + (rows[:, None] + part) * 2, mask=live, other=float("-inf"), cache_modifier=".cg")
        largest = tl.maximum(largest, tl.max(found, 1))
    # A window of no cells has no maximum.
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    total = tl.zeros([ROWS], tl.float32)
    values = tl.zeros([ROWS, triton.next_power_of_2(HEAD_DIM)], tl.float32)
    for first in range(0, parts, AT_ONCE):
        for i in tl.static_range(AT_ONCE):
            part = tl.zeros_like(h) + first + i
            live = (h < HEADS) & (part < parts)
            at = rows + part
            maximum = tl.load(softmax + at * 2, mask=live, other=float("-inf"), cache_modifier=".cg")
            share = tl.exp2(maximum - shift)
            total = tl.fma(tl.load(softmax + at * 2 + 1, mask=live, other=0.0, cache_modifier=".cg"), share, total)
            mask = live[:, None] & (d < HEAD_DIM)[None, :]
            part_values = tl.load(
                partials + at[:, None] * HEAD_DIM + d[None, :], mask=mask, other=0.0, cache_modifier=".cg"
            )
            values = tl.fma(part_values, share[:, None], values)
    return values / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def store_heads(
    values, out, row_at, head, ROWS: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, N_HEADS: tl.constexpr,
    QUANTIZE: tl.constexpr,
):  # fmt: skip
    """Heads `[ROWS, padded HEAD_DIM]` to the row at `row_at`.

    QUANTIZE 0: float32 `[heads, HEAD_DIM]`, `row_at` in elements. 32, 256: a row of Q8A32 or Q8A256, in bytes.
    """
    if QUANTIZE == 0:
        h, d = tl.arange(0, ROWS)[:, None], tl.arange(0, values.shape[1])[None, :]
        tl.store(out + row_at + (head + h) * HEAD_DIM + d, values, mask=(h < HEADS) & (d < HEAD_DIM))
    else:
        BLOCKS: tl.constexpr = ROWS * values.shape[1] // QUANTIZE
        SUMS: tl.constexpr = 16 if QUANTIZE == 256 else 1
        # Blocks behind a head's end, or behind the heads, are padding: they get a number behind the row's last.
        first = tl.arange(0, BLOCKS) * QUANTIZE
        h, d = first // values.shape[1], first % values.shape[1]
        block = ((head + h) * HEAD_DIM + d) // QUANTIZE
        block = tl.where((h < HEADS) & (d < HEAD_DIM), block, N_HEADS * HEAD_DIM // QUANTIZE)
        blocks = tl.reshape(values, [BLOCKS, SUMS, QUANTIZE // SUMS])
        store_quantized(out + row_at, block, blocks, N_HEADS * HEAD_DIM, QUANTIZE)


@triton.jit(do_not_specialize=["base", "most_parts"])
def merge(
    out, positions, window, rows_at, listed, partials, softmax, base, most_parts, out_stride,
    N_HEADS: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, MODE: tl.constexpr, SPLIT: tl.constexpr,
    LISTED: tl.constexpr, QUANTIZE: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """HEADS heads from `program_id(0)` HEADS on, of the rows of `split`'s slots, out of its `partials`."""
    head = tl.program_id(0) * HEADS
    count = tl.minimum(tl.load(rows_at) - base, SLOTS)
    for slot in range(tl.program_id(1), count, tl.num_programs(1)):
        row = (tl.load(listed + base + slot) if LISTED else base + slot).to(tl.int64)
        parts = tl.minimum(parts_of(row_length(window, positions, row, MODE), SPLIT), most_parts)
        values = merge_parts(partials, softmax, slot, head, parts, most_parts, N_HEADS, HEADS, HEADS, HEAD_DIM)
        store_heads(values, out, row * out_stride, head, HEADS, HEADS, HEAD_DIM, N_HEADS, QUANTIZE)
