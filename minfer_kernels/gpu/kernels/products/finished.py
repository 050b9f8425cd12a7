"""Products of up to 16 rows whose results don't leave as they are: gated and quantized, rotated, stored, normed.

Programs stream a few columns each into float32 `values`; the last one to arrive of those whose columns belong together
(a block of 8-bit activations, a head, a row) finishes them, row by row, with the code of the op's own kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels import cells as kv
from minfer_kernels.gpu.kernels import norm, quantize, rope
from minfer_kernels.gpu.kernels.lanes import silu
from minfer_kernels.gpu.kernels.products.arrival import last_of
from minfer_kernels.gpu.kernels.products.choices import stream_tile
from minfer_kernels.gpu.kernels.products.dots import dots
from minfer_kernels.gpu.kernels.products.stream import plane_types
from minfer_kernels.gpu.targets import Target

# Constants reach a kernel as Python values: pyright: reportArgumentType=false, reportGeneralTypeIssues=false

NO_CELLS = tl.constexpr(-1)


@triton.jit
def swiglu_quantize(
    x, rows_at, quants, high, scales, sub, up_quants, up_high, up_scales, up_sub, values, out, counters, n, x_stride,
    out_stride,
    K: tl.constexpr, FORMAT: tl.constexpr, UP_FORMAT: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    LANES: tl.constexpr, EIGHT_BIT: tl.constexpr, BLOCK: tl.constexpr, SUMS: tl.constexpr, DP4A: tl.constexpr,
):  # fmt: skip
    """out = silu(x @ gate.T) * (x @ up.T) in 8-bit blocks; `values` holds ROWS x n float32."""
    n_rows = tl.load(rows_at)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    gates = dots(
        x, x_stride, n_rows, quants, high, scales, sub, row, n, K, FORMAT, ROWS, LANES, EIGHT_BIT, DP4A
    )  # fmt: skip
    ups = dots(
        x, x_stride, n_rows, up_quants, up_high, up_scales, up_sub, row, n, K, UP_FORMAT, ROWS, LANES, EIGHT_BIT, DP4A
    )  # fmt: skip
    for t in tl.static_range(ROWS):
        tl.store(values + t * n + row, silu(gates[t]) * ups[t], mask=row < tl.where(t < n_rows, n, 0))
    EACH: tl.constexpr = BLOCK // SUMS
    block = tl.program_id(0) * TILE // BLOCK
    if last_of(counters + block, BLOCK // TILE):
        number = block + tl.arange(0, 1)
        at = (
            number[:, None, None] * BLOCK + tl.arange(0, SUMS)[None, :, None] * EACH + tl.arange(0, EACH)[None, None, :]
        )
        # Hoisted out of a loop that one program in many runs, addresses would spill in all of them.
        for token in tl.range(0, n_rows, disable_licm=True):
            gated = tl.load(values + token * n + at)
            quantize.store_quantized(out + token * tl.cast(out_stride, tl.int64), number, gated, n, BLOCK)


@triton.jit
def product_norm(
    x, rows_at, quants, high, scales, sub, y, out, weight, normed, counter, n, x_stride, y_stride, out_stride,
    normed_stride, eps,
    K: tl.constexpr, FORMAT: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr,
    EIGHT_BIT: tl.constexpr, BLOCK: tl.constexpr, SUMS: tl.constexpr, WIDE: tl.constexpr, DP4A: tl.constexpr,
):  # fmt: skip
    """out = x @ weight.T + y; normed = the norm of out, in 8-bit blocks of BLOCK, or as float32 where BLOCK is 0.

    `normed_stride` counts bytes of blocks, elements of float32.
    """
    n_rows = tl.load(rows_at)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    sums = dots(
        x, x_stride, n_rows, quants, high, scales, sub, row, n, K, FORMAT, ROWS, LANES, EIGHT_BIT, DP4A
    )  # fmt: skip
    for t in tl.static_range(ROWS):
        inside = row < tl.where(t < n_rows, n, 0)
        total = sums[t] + tl.load(y + t * tl.cast(y_stride, tl.int64) + row, mask=inside, other=0.0)
        tl.store(out + t * tl.cast(out_stride, tl.int64) + row, total, mask=inside)
    if last_of(counter, tl.num_programs(0)):
        for token in range(n_rows):
            at = tl.cast(token, tl.int64)
            if BLOCK > 0:
                quantize.norm_row(at, out, weight, normed, n, out_stride, normed_stride, eps, BLOCK, SUMS, WIDE)
            else:
                norm.norm_row(at, out, weight, normed, n, out_stride, normed_stride, eps, WIDE)


@triton.jit
def project(
    program, n_rows, x, x_stride, quants, high, scales, sub, bias, weight, positions, table, region, cells, values, out,
    counters, n, values_stride, out_stride, cell_bytes, eps,
    K: tl.constexpr, FORMAT: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr,
    EIGHT_BIT: tl.constexpr, DP4A: tl.constexpr, ADD: tl.constexpr, NORM: tl.constexpr, PAIRS: tl.constexpr,
    BY_ROW: tl.constexpr, LAYOUT: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr,
    HEADS: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """TILE columns of x @ weight.T (+ bias where ADD) into `values`, and what follows, for GROUP columns at a time.

    Heads are normed where NORM, rotated where PAIRS isn't "none", and go into cells of LAYOUT where that isn't
    NO_CELLS, else to `out`. GROUP 0: nothing follows.
    """
    row = program * TILE + tl.arange(0, TILE)
    sums = dots(
        x, x_stride, n_rows, quants, high, scales, sub, row, n, K, FORMAT, ROWS, LANES, EIGHT_BIT, DP4A
    )  # fmt: skip
    for t in tl.static_range(ROWS):
        total = sums[t]
        if ADD:
            total += tl.load(bias + row, mask=row < n, other=0.0)
        tl.store(values + t * tl.cast(values_stride, tl.int64) + row, total, mask=row < tl.where(t < n_rows, n, 0))
    if GROUP > 0:
        group = program * TILE // GROUP
        here = tl.minimum(GROUP, n - group * GROUP)
        if last_of(counters + group, tl.cdiv(here, TILE)):
            for token in range(n_rows):
                at = tl.cast(token, tl.int64)
                if LAYOUT == NO_CELLS:
                    rope.rotate_heads(
                        at, group * (GROUP // HEAD_DIM), values, weight, positions, table, out, n // HEAD_DIM, HEAD_DIM,
                        DIMS, values_stride, out_stride, eps, PAIRS, NORM, BY_ROW, HEADS, WIDE, HALF, REST,
                    )  # fmt: skip
                elif PAIRS != "none":
                    rope.store_heads(
                        at, group * (GROUP // 32), values, weight, positions, table, region, cells, n, HEAD_DIM, DIMS,
                        values_stride, cell_bytes, eps, PAIRS, NORM, BY_ROW, LAYOUT, BLOCKS, WIDE, HEAD_DIM % 32 == 0,
                    )  # fmt: skip
                else:
                    block = group * (GROUP // 32) + tl.arange(0, BLOCKS)
                    element = block[:, None] * 32 + tl.arange(0, 32)[None, :]
                    found = tl.load(values + at * values_stride + element, mask=element < n, other=0.0)
                    cell = kv.cell_row(region, tl.load(cells + at), cell_bytes)
                    kv.store_blocks(cell, block, found, n, cell_bytes, LAYOUT)


def configurations_for(target: Target) -> Iterator[Configuration]:
    """Of what a product is finished with, on one device."""
    numbers = ("n", "x_stride", "out_stride")
    for fmt, block, k in (("Q8_0", 32, 3584), ("Q4_K", 256, 3584), ("Q4_1", 32, 576)):
        tile = stream_tile(target, fmt, k, 1)
        up = {f"up_{name}": kind for name, kind in plane_types(fmt).items()}
        shared = {"K": k, "ROWS": 1, "TILE": tile.rows, "LANES": tile.lanes, "EIGHT_BIT": True, "DP4A": True}
        blocks = {"BLOCK": block, "SUMS": 1 if block == 32 else block // 16}
        yield Configuration(
            f"products.swiglu_quantize.{fmt}.{k}",
            swiglu_quantize,
            {
                **dict.fromkeys(("x", "out"), "*u8"),
                **dict.fromkeys(("rows_at", "counters"), "*i32"),
                **plane_types(fmt),
                **up,
                "values": "*fp32",
                **dict.fromkeys(numbers, "i32"),
            },
            {**shared, **blocks, "FORMAT": fmt, "UP_FORMAT": fmt},
            divisible=("x", "out", "values", *plane_types(fmt), *up, *numbers),
            warps=tile.warps,
            sampled=fmt == "Q4_K",
        )
        # The product down to the width, which is as long as the feed-forward block is wide.
        down = {3584: 18944, 576: 1536}[k]
        if fmt == "Q4_K":
            continue
        tile = stream_tile(target, fmt, down, 1)
        shared |= {"K": down, "TILE": tile.rows, "LANES": tile.lanes}
        numbers_too = (*numbers, "y_stride", "normed_stride")
        yield Configuration(
            f"products.fused_norm.{fmt}.{k}",
            product_norm,
            {
                **dict.fromkeys(("x", "normed"), "*u8"),
                **dict.fromkeys(("rows_at", "counter"), "*i32"),
                **plane_types(fmt),
                **dict.fromkeys(("y", "out", "weight"), "*fp32"),
                **dict.fromkeys(numbers_too, "i32"),
                "eps": "fp32",
            },
            {**shared, **blocks, "FORMAT": fmt, "WIDE": triton.next_power_of_2(k)},
            divisible=("x", "normed", "y", "out", "weight", *plane_types(fmt), *numbers_too),
            warps=tile.warps,
            promises=Promises(dp4a=k == 3584, wide_loads=k == 3584),
            sampled=fmt == "Q8_0",
        )
