"""Matrix products with packed weights: `matmul.matmul[q4_1]` and so on, one kernel per weight format.

out[t, n] = sum over k of x[t, k] * w[n, k]. A thread takes a range of groups of eight output rows. One row of
x reads each weight once (gemv); more rows are taken four at a time, so that a decoded weight meets four
tokens, and a group's weights stay in cache while it meets a panel of them. An element's arithmetic is the same
everywhere (`decoders.protocol`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.decoders.registry import decoder_of
from minfer_kernels.cpu.kernels.parts.rows import ceil_div, first_item
from minfer_kernels.cpu.simd import inline, load_i32, prefetch, smaller, store_f32x8, store_f32x8_partial
from minfer_kernels.cpu.simd.ints import pair_dot, splat_i16x2, zero_i32x8
from minfer_kernels.cpu.weights.layouts import ROWS, RUN, layout_of

# Bytes ahead of a gemv's reads. From memory, one thread of a Sapphire Rapids VM: F16 10 GB/s with, 7.3 without;
# nothing measurable either way for the quantized formats there, a fifth on Zen 3.
PREFETCH_AHEAD = 3072
# Activation rows of a panel together: half of a small L2, the rest for the weights that pass by.
PANEL_BYTES = 1 << 17


class GroupProducts(NamedTuple):
    """Kernel functions over one packed group; x is the address of an activation row."""

    one: Callable[..., Any]
    """(group, n_blocks, x, k) to f32x8: the group's eight rows with one token."""
    four: Callable[..., Any]
    """(group, n_blocks, x, x_stride, k) to four f32x8: with the tokens at x, x + x_stride, and so on."""


@cache
def group_products(fmt: str) -> GroupProducts:
    """The products of a group of weights of the format with GGML name `fmt`, for any kernel to inline."""
    return GroupProducts(_product_of_one(fmt), _products_of_four(fmt))


@inline
def store_group(p: Any, count: Any, values: Any) -> None:
    """Store a group's results at p: all eight, or the first `count` when there are fewer."""
    if count >= ROWS:
        store_f32x8(p, values)
    else:
        store_f32x8_partial(p, count, values)


@kernel_family
def matmul(fmt: str) -> Kernel:
    """The kernel for weights of the format with GGML name `fmt`, in lower case.

    Operands: x, rows of the layout's activation format, `x_stride` bytes apart; w, a `PackedWeight` `[n, k]`;
    out, float32 rows `out_stride` bytes apart; rows_at, the int32 number of rows.
    """
    layout = layout_of(fmt.upper())
    block, block_bytes = layout.block, layout.block_bytes
    one, four = group_products(layout.format)

    @kernel
    def body(
        x: Ptr, w: Ptr, out: Ptr, rows_at: Ptr, x_stride: Int, out_stride: Int, n: Int, k: Int, tid: Int, n_threads: Int
    ) -> None:
        rows = load_i32(rows_at)
        n_blocks = k // block
        n_groups = ceil_div(n, ROWS)
        first, end = first_item(n_groups, tid, n_threads), first_item(n_groups, tid + 1, n_threads)
        panel = 4 * (PANEL_BYTES // (4 * x_stride + 1) + 1)
        for panel_start in range(0, rows, panel):
            panel_end = smaller(panel_start + panel, rows)
            for g in range(first, end):
                group = w + g * n_blocks * block_bytes
                count = n - ROWS * g
                t = panel_start
                while t + 4 <= panel_end:
                    at = out + t * out_stride + 4 * ROWS * g
                    y0, y1, y2, y3 = four(group, n_blocks, x + t * x_stride, x_stride, k)
                    store_group(at, count, y0)
                    store_group(at + out_stride, count, y1)
                    store_group(at + 2 * out_stride, count, y2)
                    store_group(at + 3 * out_stride, count, y3)
                    t += 4
                while t < panel_end:
                    y = one(group, n_blocks, x + t * x_stride, k)
                    store_group(out + t * out_stride + 4 * ROWS * g, count, y)
                    t += 1

    return body


def _product_of_one(fmt: str) -> Callable[..., Any]:
    decoder = decoder_of(fmt)
    load, dot, load_offsets = decoder.load, decoder.dot, decoder.load_offsets
    begin, close, finish = decoder.begin, decoder.close, decoder.finish
    runs, offset_runs = decoder.runs, decoder.offset_runs
    block, block_bytes = decoder.layout.block, decoder.layout.block_bytes

    @inline
    def one(group: Any, n_blocks: Any, x: Any, k: Any) -> Any:
        state = begin()
        for b in range(n_blocks):
            p = group + b * block_bytes
            for line in range(0, block_bytes, 64):
                prefetch(p + PREFETCH_AHEAD + line)
            offsets = zero_i32x8()
            for r in range(offset_runs):
                pairs = load_offsets(p, r)
                offsets = offsets + pair_dot(pairs, splat_i16x2(x + k + k // 64 + 32 * b + 4 * r))
            sums = zero_i32x8()
            for r in range(runs):
                sums = sums + dot(load(p, r), x + block * b + RUN * r)
            state = close(p, b, x, k, sums, offsets, state)
        return finish(state)

    return one


def _products_of_four(fmt: str) -> Callable[..., Any]:
    decoder = decoder_of(fmt)
    load, dot, load_offsets = decoder.load, decoder.dot, decoder.load_offsets
    begin, close, finish = decoder.begin, decoder.close, decoder.finish
    runs, offset_runs = decoder.runs, decoder.offset_runs
    block, block_bytes = decoder.layout.block, decoder.layout.block_bytes

    @inline
    def four(group: Any, n_blocks: Any, x: Any, stride: Any, k: Any) -> Any:
        x0, x1, x2, x3 = x, x + stride, x + 2 * stride, x + 3 * stride
        a0, a1, a2, a3 = begin(), begin(), begin(), begin()
        for b in range(n_blocks):
            p = group + b * block_bytes
            o0, o1, o2, o3 = zero_i32x8(), zero_i32x8(), zero_i32x8(), zero_i32x8()
            for r in range(offset_runs):
                pairs, at = load_offsets(p, r), k + k // 64 + 32 * b + 4 * r
                o0 = o0 + pair_dot(pairs, splat_i16x2(x0 + at))
                o1 = o1 + pair_dot(pairs, splat_i16x2(x1 + at))
                o2 = o2 + pair_dot(pairs, splat_i16x2(x2 + at))
                o3 = o3 + pair_dot(pairs, splat_i16x2(x3 + at))
            s0, s1, s2, s3 = zero_i32x8(), zero_i32x8(), zero_i32x8(), zero_i32x8()
            for r in range(runs):
                weights, at = load(p, r), block * b + RUN * r
                s0 = s0 + dot(weights, x0 + at)
                s1 = s1 + dot(weights, x1 + at)
                s2 = s2 + dot(weights, x2 + at)
                s3 = s3 + dot(weights, x3 + at)
            a0 = close(p, b, x0, k, s0, o0, a0)
            a1 = close(p, b, x1, k, s1, o1, a1)
            a2 = close(p, b, x2, k, s2, o2, a2)
            a3 = close(p, b, x3, k, s3, o3, a3)
        return finish(a0), finish(a1), finish(a2), finish(a3)

    return four
