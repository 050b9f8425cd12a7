"""The two products of attention over one block of cells: scores of query heads, and weighted values."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.attention.geometry import (
    columns_of,
    folded,
    halves,
    pieces_of,
    repeated,
    rows_of,
    scored_rows_of,
)
from minfer_kernels.gpu.kernels.cells import F32, Q8_0, load_elements, load_quants, load_scales, load_words
from minfer_kernels.gpu.kernels.dot4 import dot4
from minfer_kernels.gpu.kernels.lanes import float_precision

# Constants reach a kernel as Python values.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAssignmentType=false


@triton.jit
def block_scores(
    query, rows, inside, kv_head, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    LAYOUT: tl.constexpr, MATRIX: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """`[rows_of(GROUP), BLOCK]` float32: products of `query` (of `load_query`) with the K rows; 0 where not `inside`.

    Rows beyond the group are zeros or repeat it.
    """
    if LAYOUT == Q8_0:
        SCORED: tl.constexpr = scored_rows_of(GROUP, LAYOUT, MATRIX)
        scores = tl.zeros([SCORED, rows.shape[0]], tl.float32)
        for b in tl.static_range(pieces_of(HEAD_DIM, LAYOUT)):
            block = kv_head * (HEAD_DIM // 32) + b
            if MATRIX:
                quants = load_quants(rows[:, None], block * 32 + tl.arange(0, 32)[None, :], inside[:, None])
                dots = tl.dot(query[2 * b], tl.trans(quants))
            else:
                dots = _dots(
                    query[2 * b], load_words(rows[:, None], block * 8 + tl.arange(0, 8)[None, :], inside[:, None]), PTX
                )
            scales = load_scales(rows, block, KV_HEADS * HEAD_DIM, inside)
            scores = tl.fma(dots.to(tl.float32), query[2 * b + 1][:, None] * scales[None, :], scores)
        scores = repeated(scores, rows_of(GROUP) // SCORED)
    else:
        tile = tl.trans(_tile(rows, inside, kv_head, KV_HEADS, HEAD_DIM, LAYOUT))
        if LAYOUT == F32:
            scores = tl.dot(query[0], tile, input_precision=float_precision(PTX))
        else:
            scores = folded(tl.dot(query[0], tile), rows_of(GROUP))
    return scores


@triton.jit
def _dots(query, words, PTX: tl.constexpr):
    """`[N, BLOCK]` int32: products of words of four bytes `[N, 8]` and `[BLOCK, 8]`."""
    a, b = tl.broadcast(query[:, None, :], words[None, :, :])
    return tl.sum(dot4(a, b, tl.zeros_like(a), PTX), 2)


@triton.jit
def _tile(rows, inside, kv_head, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, LAYOUT: tl.constexpr):
    """One head of float cells `[BLOCK, columns]` in their own type."""
    d = tl.arange(0, columns_of(HEAD_DIM, LAYOUT))[None, :]
    mask = inside[:, None] & (d < HEAD_DIM)
    tile = load_elements(rows[:, None], kv_head * HEAD_DIM + d, KV_HEADS * HEAD_DIM, mask, LAYOUT)
    return tile if LAYOUT == F32 else tile.to(tl.float16)


@triton.jit
def add_values(
    values, fade, weights, rows, inside, kv_head, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    LAYOUT: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """`values` (one `[tile, columns]` for each piece of the head) times `fade` plus the weighted V rows.

    `weights` `[rows, BLOCK]` float32, `fade` `[rows]`.
    """
    if LAYOUT == Q8_0:
        faded, added = repeated(fade, 2)[:, None], ()
        for b in tl.static_range(pieces_of(HEAD_DIM, LAYOUT)):
            block = kv_head * (HEAD_DIM // 32) + b
            scales = load_scales(rows, block, KV_HEADS * HEAD_DIM, inside)
            # Relative to the largest of the block, so that small scales keep their bits in float16.
            largest = tl.max(tl.abs(scales), 0)
            share = tl.where(largest == 0.0, 0.0, scales / largest)
            quants = load_quants(rows[:, None], block * 32 + tl.arange(0, 32)[None, :], inside[:, None])
            sums = tl.dot(halves(weights * share[None, :]), _as_float16(quants, PTX))
            added = added + (tl.fma(sums, largest, values[b] * faded),)
    else:
        tile = _tile(rows, inside, kv_head, KV_HEADS, HEAD_DIM, LAYOUT)
        if LAYOUT == F32:
            added = (tl.dot(weights, tile, values[0] * fade[:, None], input_precision=float_precision(PTX)),)
        else:
            added = (tl.dot(halves(weights), tile, values[0] * repeated(fade, 2)[:, None]),)
    return added


@triton.jit
def _as_float16(quants, PTX: tl.constexpr):
    """int8 to float16, which is exact; PTX: two at a time, as the low bits of 1024 + 128 + q."""
    if PTX:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 shifted, low, high, centre;
            xor.b32 shifted, $2, 0x80808080;
            prmt.b32 low, shifted, 0x64646464, 0x4140;
            prmt.b32 high, shifted, 0x64646464, 0x4342;
            mov.b32 centre, 0x64806480;
            sub.f16x2 $0, low, centre;
            sub.f16x2 $1, high, centre;
            }""",
            "=r,=r,r", [quants], dtype=tl.float16, is_pure=True, pack=4,
        )  # fmt: skip
    else:
        return quants.to(tl.float16)
