"""Products of a packed group with many tokens in AMX tiles, to the bits of `decoders.blocks`.

A group is decoded a chunk of its columns at a time: as much as stays in the first cache while every tile of tokens
meets it. Between chunks the results wait where they belong. What is multiplied is added to the results two blocks (of
32) or one block (of 256) later, when the sums can be read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.decoders.protocol import Step
from minfer_kernels.cpu.decoders.tiles import SCALED_BYTES, kquant_tiles, simple_tiles
from minfer_kernels.cpu.kernels.parts.rows import ceil_div
from minfer_kernels.cpu.simd import (
    f32,
    fma,
    inline,
    larger,
    load_f16x16,
    load_f32,
    load_f32x16,
    load_f32x16_partial,
    load_i32x16,
    smaller,
    splat_f32x16,
    splat_i32x16,
    store_f32x16,
    to_f32,
)
from minfer_kernels.cpu.simd.core import stack_room
from minfer_kernels.cpu.simd.ints import times_power_of_two
from minfer_kernels.cpu.simd.tiles import (
    RUN_BYTES,
    SUMS_BYTES,
    TOKENS,
    add_products,
    add_products_and_minimums,
    close_tiles,
    load_i32x16_partial,
    load_results,
    multiply_32,
    multiply_256,
    multiply_pairs,
    no_results,
    open_tiles,
    store_results,
)
from minfer_kernels.cpu.weights.layouts import WeightLayout

ROWS = 16
"""Rows of the groups that tiles take; a group with fewer is left to vectors."""
CHUNK = 32
"""Most blocks of 32 in a chunk: 16 KiB of tiles."""
CHUNK_OF_256 = 2
"""Most blocks of 256 in a chunk: 18 KiB of tiles."""
FACTORS_BYTES = 8 * CHUNK
"""Of each token in a chunk, beside each other so that a loop over blocks needs one address: its scales, and these times
its sums of quants."""
BEHIND = 2
"""How many blocks of 32 are multiplied before the first is added; sums live in 4 places."""


def with_tiles(layout: WeightLayout, vectors: Callable[..., Any]) -> Callable[..., Any]:
    """`GroupProducts.multiply` for whole tiles of tokens, `vectors` for what is left."""
    sweep = (_simple_sweep if layout.block == 32 else _kquant_sweep)(layout)

    @inline
    def multiply(
        group: Any, n_blocks: Any, k: Any, count: Any, x: Any, x_stride: Any, out: Any, out_stride: Any,
        start: Any, stop: Any,
    ) -> None:  # fmt: skip
        t = start
        if count >= ROWS and stop - start >= TOKENS:
            t = stop - (stop - start) % TOKENS
            open_tiles()
            sweep(group, n_blocks, k, x, x_stride, out, out_stride, start, t)
            close_tiles()
        vectors(group, n_blocks, k, count, x, x_stride, out, out_stride, t, stop)

    return multiply


def _simple_sweep(layout: WeightLayout) -> Step:
    """Blocks of 32: results stay in registers over a chunk."""
    block_bytes, decode = layout.block_bytes, simple_tiles(layout)
    load_scales, prepare, add = (_with_minimums if layout.has("m") else _scaled)(layout)
    tiles_room, scales_room = stack_room(RUN_BYTES * CHUNK), stack_room(128 * CHUNK)
    sums_room, factors_room = stack_room(4 * SUMS_BYTES), stack_room(FACTORS_BYTES * TOKENS)

    @inline
    def tile(results: Any, n: Any, x: Any, x_stride: Any, tiles: Any, scales: Any, factors: Any) -> Any:
        sums = sums_room()
        for b in range(smaller(BEHIND, n)):
            multiply_32(x + 32 * b, x_stride, tiles + RUN_BYTES * b, sums + SUMS_BYTES * b)
        for b in range(n - BEHIND):
            ahead = b + BEHIND
            multiply_32(x + 32 * ahead, x_stride, tiles + RUN_BYTES * ahead, sums + SUMS_BYTES * (ahead % 4))
            results = add(results, sums + SUMS_BYTES * (b % 4), scales + 128 * b, factors + 4 * b)
        for b in range(larger(n - BEHIND, 0), n):
            results = add(results, sums + SUMS_BYTES * (b % 4), scales + 128 * b, factors + 4 * b)
        return results

    @inline
    def sweep(
        group: Any, n_blocks: Any, k: Any, x: Any, x_stride: Any, out: Any, out_stride: Any, start: Any, stop: Any
    ) -> None:
        tiles, scales, factors = tiles_room(), scales_room(), factors_room()
        chunks = ceil_div(n_blocks, CHUNK)
        for c in range(chunks):
            first, end = n_blocks * c // chunks, n_blocks * (c + 1) // chunks
            for b in range(first, end):
                block, at = group + b * block_bytes, b - first
                decode(block, tiles + RUN_BYTES * at)
                load_scales(block, scales + 128 * at)
            for t in range(start, stop, TOKENS):
                row, place = x + t * x_stride, out + t * out_stride
                prepare(row + k + 4 * first, k // 8, x_stride, end - first, factors)
                results = load_results(place, out_stride) if c > 0 else no_results()
                results = tile(results, end - first, row + 32 * first, x_stride, tiles, scales, factors)
                store_results(place, out_stride, results)

    return sweep


def _scaled(layout: WeightLayout) -> tuple[Step, Step, Step]:
    """Of blocks of 32: (block, out) that keeps the scales, what prepares a tile of tokens, and what adds a block."""
    d_at = layout.field("d").offset

    @inline
    def load_scales(block: Any, out: Any) -> None:
        store_f32x16(out, load_f16x16(block + d_at))

    @inline
    def prepare(dx: Any, _sums_behind: Any, x_stride: Any, n: Any, factors: Any) -> None:
        for t in range(TOKENS):
            for b in range(0, n, 16):
                scales = load_f32x16_partial(dx + t * x_stride + 4 * b, n - b, f32(0.0))
                store_f32x16(factors + FACTORS_BYTES * t + 4 * b, scales)

    @inline
    def add(results: Any, sums: Any, scales: Any, factors: Any) -> Any:
        return add_products(results, sums, load_f32x16(scales), factors, FACTORS_BYTES)

    return load_scales, prepare, add


def _with_minimums(layout: WeightLayout) -> tuple[Step, Step, Step]:
    d_at, m_at = layout.field("d").offset, layout.field("m").offset

    @inline
    def load_scales(block: Any, out: Any) -> None:
        store_f32x16(out, load_f16x16(block + d_at))
        store_f32x16(out + 64, load_f16x16(block + m_at))

    @inline
    def prepare(dx: Any, sums_behind: Any, x_stride: Any, n: Any, factors: Any) -> None:
        for t in range(TOKENS):
            for b in range(0, n, 16):
                at, to = dx + t * x_stride + 4 * b, factors + FACTORS_BYTES * t + 4 * b
                scales = load_f32x16_partial(at, n - b, f32(0.0))
                store_f32x16(to, scales)
                store_f32x16(to + 4 * CHUNK, scales * to_f32(load_i32x16_partial(at + sums_behind, n - b)))

    @inline
    def add(results: Any, sums: Any, scales: Any, factors: Any) -> Any:
        d, m = load_f32x16(scales), load_f32x16(scales + 64)
        return add_products_and_minimums(results, sums, d, factors, m, factors + 4 * CHUNK, FACTORS_BYTES)

    return load_scales, prepare, add


def _kquant_sweep(layout: WeightLayout) -> Step:
    """Blocks of 256: results wait in memory between blocks, and tiles of tokens follow each other without a gap."""
    block_bytes, decode, minimums = layout.block_bytes, kquant_tiles(layout), layout.has("dmin")
    multiply, add = _kquant_block(minimums), _kquant_adder(layout)
    tiles_bytes, sums_bytes = SCALED_BYTES + 2 * RUN_BYTES * minimums, 2 * SUMS_BYTES * (1 + minimums)
    tiles_room, sums_room = stack_room(tiles_bytes * CHUNK_OF_256), stack_room(2 * sums_bytes)

    @inline
    def sweep(
        group: Any, n_blocks: Any, k: Any, x: Any, x_stride: Any, out: Any, out_stride: Any, start: Any, stop: Any
    ) -> None:
        tiles, sums = tiles_room(), sums_room()
        zeros = splat_f32x16(f32(0.0))
        for t in range(start, stop):
            store_f32x16(out + t * out_stride, zeros)
        for first in range(0, n_blocks, CHUNK_OF_256):
            n = smaller(CHUNK_OF_256, n_blocks - first)
            for b in range(n):
                decode(group + (first + b) * block_bytes, tiles + tiles_bytes * b)
            steps = (stop - start) // TOKENS * n
            for i in range(steps + 1):
                if i < steps:
                    row, b = x + (start + i // n * TOKENS) * x_stride, i % n
                    multiply(row, first + b, x_stride, k, tiles + tiles_bytes * b, sums + sums_bytes * (i % 2))
                if i > 0:
                    t, b = start + (i - 1) // n * TOKENS, first + (i - 1) % n
                    place, dx, done = (
                        out + t * out_stride,
                        x + t * x_stride + k + 4 * b,
                        sums + sums_bytes * ((i - 1) % 2),
                    )
                    add(place, out_stride, done, group + b * block_bytes, dx, x_stride)

    return sweep


def _kquant_block(minimums: bool) -> Step:
    """(x, block index, x_stride, k, tiles, sums): multiply a block with a tile of tokens."""

    @inline
    def products(x: Any, b: Any, x_stride: Any, _k: Any, tiles: Any, sums: Any) -> None:
        multiply_256(x + 256 * b, x_stride, tiles, sums)

    @inline
    def both(x: Any, b: Any, x_stride: Any, k: Any, tiles: Any, sums: Any) -> None:
        multiply_256(x + 256 * b, x_stride, tiles, sums)
        multiply_pairs(x + k + k // 64 + 32 * b, x_stride, tiles + SCALED_BYTES, sums + 2 * SUMS_BYTES)

    return both if minimums else products


def _kquant_adder(layout: WeightLayout) -> Step:
    """(out, out_stride, sums, block, dx, x_stride): add a block to the results of a tile of tokens."""
    minimums, d_at = layout.has("dmin"), layout.field("d").offset
    dmin_at = layout.field("dmin").offset if minimums else 0

    @inline
    def add_one(place: Any, at: Any, d: Any, dmin: Any, dx: Any) -> None:
        result = fma(d * dx, to_f32(_joined(at)), load_f32x16(place))
        if minimums:
            result = fma(dmin * dx, to_f32(splat_i32x16(0) - _joined(at + 2 * SUMS_BYTES)), result)
        store_f32x16(place, result)

    @inline
    def add(out: Any, out_stride: Any, sums: Any, block: Any, dx: Any, x_stride: Any) -> None:
        d, dmin = load_f16x16(block + d_at), load_f16x16(block + dmin_at)
        for t in range(TOKENS):
            add_one(out + t * out_stride, sums + 64 * t, d, dmin, splat_f32x16(load_f32(dx + t * x_stride)))

    return add


@inline
def _joined(sums: Any) -> Any:
    """The sums of low bytes and, behind them, of high ones, as one."""
    return load_i32x16(sums) + times_power_of_two(load_i32x16(sums + SUMS_BYTES), 8)
