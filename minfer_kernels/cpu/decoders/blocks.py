"""The matmul skeleton of quantized formats: the canonical order of `decoders.protocol`, for every token of a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.decoders.protocol import Decoder, Step
from minfer_kernels.cpu.decoders.steps import int_zeros
from minfer_kernels.cpu.kernels.parts.tokens import each_token, repeated
from minfer_kernels.cpu.simd import inline, prefetch_l2
from minfer_kernels.cpu.simd.runs import DOTS
from minfer_kernels.cpu.weights.layouts import RUN


def block_tile(decoder: Decoder, tokens: int, ahead: int) -> Callable[..., Any]:
    """(group, n_blocks, x, stride, k) to the products of a packed group with `tokens` tokens (`parts.tokens`).

    Weights are asked for `ahead` bytes before they are read; 0 asks for none.
    """
    load_scales, block_bytes = decoder.load_scales, decoder.layout.block_bytes
    begin, open_block = repeated(_empty(decoder), tokens), each_token(_opened(decoder), tokens)
    add_offsets, add_products = _all_offsets(decoder, tokens), _all_products(decoder, tokens, ahead)
    close, finish = each_token(_closed(decoder), tokens), each_token(_finished(decoder), tokens)

    @inline
    def tile(group: Any, n_blocks: Any, x: Any, stride: Any, k: Any) -> Any:
        state = begin()
        for b in range(n_blocks):
            p = group + b * block_bytes
            state = open_block(x, stride, (k, b), state)
            state = add_offsets(p, x, stride, k, b, state)
            state = add_products(p, x, stride, b, state)
            state = close(x, stride, (load_scales(p), k, b), state)
        return finish(x, stride, k, state)

    return tile


def _all_offsets(decoder: Decoder, tokens: int) -> Step:
    """(block, x, stride, k, block index, tile) to the tile with the block's offsets."""
    if decoder.offset_runs == 0:
        return inline(lambda _p, _x, _stride, _k, _b, tile: tile)
    add, load, runs = each_token(_with_offsets(decoder), tokens), decoder.load_offsets, decoder.offset_runs

    @inline
    def add_all(p: Any, x: Any, stride: Any, k: Any, b: Any, tile: Any) -> Any:
        for r in range(runs):
            tile = add(x + k + k // 64 + 32 * b + 4 * r, stride, load(p, r), tile)
        return tile

    return add_all


def _all_products(decoder: Decoder, tokens: int, ahead: int) -> Step:
    """(block, x, stride, block index, tile) to the tile with the block's sums."""
    add, load, runs = each_token(_with_products(decoder), tokens), decoder.load, decoder.runs
    block = decoder.layout.block
    # A run asks for its share of a block: a K-quant block at once would fill every line buffer a core has.
    share = -(-decoder.layout.block_bytes // (64 * runs)) * 64 if ahead else 0

    @inline
    def add_all(p: Any, x: Any, stride: Any, b: Any, tile: Any) -> Any:
        for r in range(runs):
            for line in range(0, share, 64):
                prefetch_l2(p + ahead + share * r + line)
            tile = add(x + block * b + RUN * r, stride, load(p, r), tile)
        return tile

    return add_all


# Steps of one token; its value is (state, sums, offsets).


def _empty(decoder: Decoder) -> Step:
    begin, none = decoder.begin, int_zeros(decoder.layout.rows)
    return inline(lambda: (begin(), none(), none()))


def _opened(decoder: Decoder) -> Step:
    start, none = decoder.start, int_zeros(decoder.layout.rows)
    return inline(lambda x, at, value: (value[0], start(x, at[0], at[1]), none()))


def _with_offsets(decoder: Decoder) -> Step:
    dots = DOTS[decoder.layout.rows]
    pair_dot, splat_pair = dots.pair_dot, dots.splat_pair
    return inline(lambda x, pairs, value: (value[0], value[1], pair_dot(value[2], pairs, splat_pair(x))))


def _with_products(decoder: Decoder) -> Step:
    dot = decoder.dot
    return inline(lambda x, weights, value: (value[0], dot(value[1], weights, x), value[2]))


def _closed(decoder: Decoder) -> Step:
    close = decoder.close

    @inline
    def closed(x: Any, shared: Any, value: Any) -> Any:
        scales, k, b = shared
        return close(scales, x, k, b, value[1], value[2], value[0]), value[1], value[2]

    return closed


def _finished(decoder: Decoder) -> Step:
    finish = decoder.finish
    return inline(lambda _x, _k, value: finish(value[0]))
