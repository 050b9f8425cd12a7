"""Products of up to 16 rows, or 16 at a time: programs stream a few rows of the weight each, and finish their sums."""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels.lanes import silu
from minfer_kernels.gpu.kernels.products.choices import stream_tile
from minfer_kernels.gpu.kernels.products.dots import dots
from minfer_kernels.gpu.planes.layouts import LAYOUTS, UNIT
from minfer_kernels.gpu.targets import Target

# Constants reach a kernel as Python values: pyright: reportArgumentType=false, reportGeneralTypeIssues=false


@triton.jit
def product(
    x,
    rows_at,
    quants,
    high,
    scales,
    sub,
    y,
    out,
    n,
    x_stride,
    y_stride,
    out_stride,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
    ADD: tl.constexpr,
    EIGHT_BIT: tl.constexpr,
    DP4A: tl.constexpr,
):
    """out = x @ weight.T, plus `y` where ADD: TILE columns of the result, for ROWS rows."""
    first = tl.program_id(1) * ROWS
    n_rows = tl.load(rows_at) - first
    if n_rows <= 0:
        return
    x += first * tl.cast(x_stride, tl.int64)
    y += first * tl.cast(y_stride, tl.int64)
    out += first * tl.cast(out_stride, tl.int64)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    sums = dots(
        x, x_stride, n_rows, quants, high, scales, sub, row, n, K, FORMAT, ROWS, LANES, EIGHT_BIT, DP4A
    )  # fmt: skip
    for t in tl.static_range(ROWS):
        inside = row < tl.where(t < n_rows, n, 0)
        total = sums[t]
        if ADD:
            total += tl.load(y + t * tl.cast(y_stride, tl.int64) + row, mask=inside, other=0.0)
        tl.store(out + t * tl.cast(out_stride, tl.int64) + row, total, mask=inside)


@triton.jit
def swiglu(
    x,
    rows_at,
    quants,
    high,
    scales,
    sub,
    up_quants,
    up_high,
    up_scales,
    up_sub,
    out,
    n,
    x_stride,
    out_stride,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    UP_FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
    EIGHT_BIT: tl.constexpr,
    DP4A: tl.constexpr,
):
    """out = silu(x @ gate.T) * (x @ up.T): TILE columns of the result, for ROWS rows."""
    first = tl.program_id(1) * ROWS
    n_rows = tl.load(rows_at) - first
    if n_rows <= 0:
        return
    x += first * tl.cast(x_stride, tl.int64)
    out += first * tl.cast(out_stride, tl.int64)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    gates = dots(
        x, x_stride, n_rows, quants, high, scales, sub, row, n, K, FORMAT, ROWS, LANES, EIGHT_BIT, DP4A
    )  # fmt: skip
    ups = dots(
        x, x_stride, n_rows, up_quants, up_high, up_scales, up_sub, row, n, K, UP_FORMAT, ROWS, LANES, EIGHT_BIT, DP4A
    )  # fmt: skip
    for t in tl.static_range(ROWS):
        inside = row < tl.where(t < n_rows, n, 0)
        gated = silu(gates[t]) * ups[t]
        tl.store(out + t * tl.cast(out_stride, tl.int64) + row, gated, mask=inside)


TYPES = {"i32": "*i32", "i16": "*i16", "f16": "*fp16", "bf16": "*bf16", "f32": "*fp32"}


def plane_types(fmt: str, prefix: str = "") -> dict[str, str]:
    """Triton's type of every plane parameter; where a format lacks one, its first plane stands in."""
    kinds = {plane.name: TYPES[plane.dtype] for plane in LAYOUTS[fmt].planes}
    first = next(iter(kinds.values()))
    return {prefix + name: kinds.get(name, first) for name in ("quants", "high", "scales", "sub")}


INTEGER_OPS = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1"), 1.7),
    "Q8_0": 0.7,
    **dict.fromkeys(("Q2_K", "Q3_K", "Q5_K", "Q6_K"), 2.0),
    "IQ4_NL": 2.7,
}
"""Integer instructions that a weight may cost; bits from two planes, and looking levels up, cost more."""


def configurations_for(target: Target) -> Iterator[Configuration]:
    """Of what streams, on one device."""
    usual = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16")
    for fmt, layout in LAYOUTS.items():
        shapes = [("7b_down", 18944, 1)]
        if fmt in usual:
            shapes += [("7b", 3584, 4), ("7b", 3584, 16), ("0.6b", 1024, 1)]
        if fmt in ("Q4_1", "Q8_0"):
            shapes.append(("smollm2", 576, 1))
        for shape, k, rows in shapes:
            if k % layout.format.block_size == 0:
                tile = stream_tile(target, fmt, k, rows)
                quantized = layout.bits > 0
                yield Configuration(
                    f"products.stream.{fmt}.{shape}.{rows}rows",
                    product,
                    {
                        **dict.fromkeys(("y", "out"), "*fp32"),
                        "x": "*u8",
                        "rows_at": "*i32",
                        **plane_types(fmt),
                        **dict.fromkeys(("n", "x_stride", "y_stride", "out_stride"), "i32"),
                    },
                    {
                        "K": k,
                        "FORMAT": fmt,
                        "ROWS": rows,
                        "TILE": tile.rows,
                        "LANES": tile.lanes,
                        "ADD": True,
                        "EIGHT_BIT": quantized,
                        "DP4A": True,
                    },
                    divisible=("x", *plane_types(fmt), "y", "out", "n", "x_stride", "y_stride", "out_stride"),
                    warps=tile.warps,
                    promises=Promises(
                        dp4a=quantized,
                        wide_loads=layout.bits != 2,
                        integer_ops=INTEGER_OPS[fmt] if quantized and rows == 1 and k > 4096 else None,
                        weights_per_turn=tile.rows * tile.lanes * UNIT if quantized else 0,
                    ),
                    sampled=shape == "7b_down" and fmt in ("Q4_0", "Q8_0", "Q6_K"),
                )
