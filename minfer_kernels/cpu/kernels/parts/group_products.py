"""The products of one packed group of weights with one token, or with a tile of tokens, for any kernel to inline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from minfer_kernels.cpu.decoders.blocks import block_tile
from minfer_kernels.cpu.decoders.floats import float_tile
from minfer_kernels.cpu.decoders.registry import decoder_of
from minfer_kernels.cpu.kernels.parts import tile_products
from minfer_kernels.cpu.kernels.parts.tokens import Step, take_each
from minfer_kernels.cpu.simd import Isa, inline
from minfer_kernels.cpu.simd.core import inline_by_isa
from minfer_kernels.cpu.simd.widths import LANES
from minfer_kernels.cpu.weights.layouts import WeightLayout, layout_of

# Bytes ahead of a gemv's reads, into the second cache: lines that wait for the first are few. One thread of a Sapphire
# Rapids VM then reads Q4_K at 14.6 GB/s from memory (into the first cache 2.5 KB ahead: 12.0; a plain loop: 16). Whole
# multiples of 4 KiB meet the same sets of a cache. What is best depends on the length of rows too: docs/performance.md.
PREFETCH_AHEAD = 5376
# K-quants in groups of 8 rows, whose blocks are a quarter of a page: a 0.6B shape decodes 3 % faster.
PREFETCH_AHEAD_SMALL_KQUANTS = 3136
# Tokens of the largest tile by rows of a group: with 8 of 16 rows, two sums for each token and the eight vectors of a
# run fill 24 of 32 registers; with 4 of 8 rows, the sums fill half of 16.
TILE_TOKENS = {16: 8, 8: 4}


@dataclass(frozen=True, slots=True)
class GroupProducts:
    """Kernel functions over one packed group of `layout.rows` rows; x is the address of an activation row.

    `group` is the address of the group, `n_blocks` the blocks of its rows, k their elements. A result is a vector of
    float32, one lane per row (`f32x8` or `f32x16`).
    """

    layout: WeightLayout
    tokens: int
    """Tokens of the largest tile, a power of two."""
    one: Callable[..., Any]
    """(group, n_blocks, x, k) to the result with one token; reads the weights ahead, as from memory."""
    tile: Callable[[int], Callable[..., Any]]
    """(tokens) to a kernel function (group, n_blocks, x, x_stride, k) to the results with the tokens at x,
    x + x_stride and so on: nested pairs, as `parts.tokens` describes and walks them."""
    store: Callable[..., Any]
    """(out, count, result): the first `count` lanes, or all when there are as many, to the float32 at out."""
    multiply: Callable[..., Any]
    """(group, n_blocks, k, count, x, x_stride, out, out_stride, start, stop): the group's first `count` rows with the
    tokens start to stop - 1, token t at x + t * x_stride, to the float32 at out + t * out_stride. In the largest tiles
    while they last, then in smaller ones: what a kernel calls that has no step of its own between."""


@cache
def group_products(fmt: str, rows: int) -> GroupProducts:
    """The products of groups of `rows` of the format with GGML name `fmt`."""
    layout = layout_of(fmt, rows)

    def make(tokens: int, ahead: int) -> Callable[..., Any]:
        if layout.activation == "f32":
            return float_tile(layout, tokens, ahead)
        return block_tile(decoder_of(layout), tokens, ahead)

    small = layout.activation == "Q8A256" and rows == 8
    distance = PREFETCH_AHEAD_SMALL_KQUANTS if small else PREFETCH_AHEAD
    ahead, tile, store = make(1, distance), cache(lambda tokens: make(tokens, 0)), _store(rows)
    one = inline(lambda group, n_blocks, x, k: ahead(group, n_blocks, x, 0, k))
    multiply = _multiply(TILE_TOKENS[rows], one, tile, store)
    if rows == tile_products.ROWS and layout.activation != "f32":
        with_tiles = tile_products.with_tiles(layout, multiply)
        multiply = inline_by_isa({Isa.PORTABLE: multiply, Isa.AVX512_AMX: with_tiles})
    return GroupProducts(layout, TILE_TOKENS[rows], one, tile, store, multiply)


def _store(rows: int) -> Callable[..., Any]:
    all_lanes, some_lanes = LANES[rows].store_f32, LANES[rows].store_f32_partial

    @inline
    def store(out: Any, count: Any, result: Any) -> None:
        if count >= rows:
            all_lanes(out, result)
        else:
            some_lanes(out, count, result)

    return store


def _multiply(tokens: int, one: Step, tile_of: Callable[[int], Step], store: Step) -> Callable[..., Any]:
    """`GroupProducts.multiply` in tiles of at most `tokens`."""
    if tokens == 1:

        @inline
        def ones(
            group: Any, n_blocks: Any, k: Any, count: Any, x: Any, x_stride: Any, out: Any, out_stride: Any,
            start: Any, stop: Any,
        ) -> None:  # fmt: skip
            for t in range(start, stop):
                store(out + t * out_stride, count, one(group, n_blocks, x + t * x_stride, k))

        return ones
    tile, store_each, rest = tile_of(tokens), take_each(store, tokens), _multiply(tokens // 2, one, tile_of, store)

    @inline
    def tiles(
        group: Any, n_blocks: Any, k: Any, count: Any, x: Any, x_stride: Any, out: Any, out_stride: Any,
        start: Any, stop: Any,
    ) -> None:  # fmt: skip
        t = start
        while t + tokens <= stop:
            results = tile(group, n_blocks, x + t * x_stride, x_stride, k)
            store_each(out + t * out_stride, out_stride, count, results)
            t += tokens
        rest(group, n_blocks, k, count, x, x_stride, out, out_stride, t, stop)

    return tiles
