"""Products of many rows: tiles of weights, decoded to float16, through the tensor cores.

Activations are rounded to float16 and sums are float32, over tiles of K ascending. F32 and BF16 weights, which float16
can't hold, keep float32 operands, whose products `float_precision` makes.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels.lanes import float_precision
from minfer_kernels.gpu.kernels.products.choices import dot_tile
from minfer_kernels.gpu.kernels.products.stream import plane_types
from minfer_kernels.gpu.planes import decode
from minfer_kernels.gpu.planes.layouts import LAYOUTS
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
    TILE_ROWS: tl.constexpr,
    TILE: tl.constexpr,
    UNITS: tl.constexpr,
    ADD: tl.constexpr,
    PTX: tl.constexpr,
):
    """out = x @ weight.T, plus `y` where ADD: TILE_ROWS x TILE of the result; x, y and out float32."""
    n_rows = tl.load(rows_at)
    if tl.program_id(0) * TILE_ROWS >= n_rows:
        return
    token = tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    begin = x + token.to(tl.int64)[:, None] * x_stride
    total = tl.zeros([TILE_ROWS, TILE], tl.float32)
    for first in range(0, tl.cdiv(K, 32), UNITS):
        term = first * 32 + tl.arange(0, UNITS * 32)
        there = term < K
        a = tl.load(begin + term[None, :], mask=(token < n_rows)[:, None] & there[None, :], other=0.0)
        if FORMAT == "F32" or FORMAT == "BF16":  # noqa: PLR1714 - compile-time constants compare one by one
            w = _floats(quants, row, n, term, there, K, FORMAT)
            total = tl.dot(a, tl.trans(w.to(tl.float32)), total, input_precision=float_precision(PTX))
        elif FORMAT == "F16":
            w = _floats(quants, row, n, term, there, K, FORMAT)
            total = tl.dot(a.to(tl.float16), tl.trans(w), total)
        else:
            w = _decoded(quants, high, scales, sub, row, n, first, K, FORMAT, UNITS, PTX)
            total = tl.dot(a.to(tl.float16), tl.trans(w), total)
    inside = (token < n_rows)[:, None] & (row < n)[None, :]
    if ADD:
        total += tl.load(y + token.to(tl.int64)[:, None] * y_stride + row[None, :], mask=inside, other=0.0)
    tl.store(out + token.to(tl.int64)[:, None] * out_stride + row[None, :], total, mask=inside)


@triton.jit
def _floats(values, row, n, term, there, K: tl.constexpr, FORMAT: tl.constexpr):
    start = row.to(tl.int64)[:, None] * decode.stride_of(FORMAT, "values", K)
    return tl.load(values + start + term[None, :], mask=(row < n)[:, None] & there[None, :], other=0.0)


@triton.jit
def _decoded(
    quants,
    high,
    scales,
    sub,
    row,
    n,
    first,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    UNITS: tl.constexpr,
    PTX: tl.constexpr,
):
    """UNITS units of rows as float16 `[rows, UNITS * 32]`, in the order of the activations."""
    at = row[:, None, None]
    unit = (first + tl.arange(0, UNITS))[None, :, None]
    inside = (at < n) & (unit < K // 32)
    low, upper = decode.load_quads(quants, high, at, unit, inside, K, FORMAT, PTX)
    scale, other_scale, minimum, other_minimum = decode.unit_terms(scales, sub, at, unit, inside, K, FORMAT)
    whole = tl.join(_bytes(low, scale, minimum, FORMAT), _bytes(upper, other_scale, other_minimum, FORMAT))
    # [rows, unit, quad, byte / 2, byte % 2, half] to the order of elements.
    return tl.reshape(tl.permute(whole, (0, 1, 5, 2, 3, 4)), [row.shape[0], UNITS * 32])


@triton.jit
def _bytes(quads, scale, minimum, FORMAT: tl.constexpr):
    """Quads `[..., 4]` as float16 weights `[..., 4, 2, 2]`."""
    even = tl.join(_half(quads, scale, minimum, 0, FORMAT), _half(quads, scale, minimum, 2, FORMAT))
    odd = tl.join(_half(quads, scale, minimum, 1, FORMAT), _half(quads, scale, minimum, 3, FORMAT))
    return tl.join(even, odd)


@triton.jit
def _half(quads, scale, minimum, J: tl.constexpr, FORMAT: tl.constexpr):
    return decode.weights_of(quads, scale, minimum, J, FORMAT).to(tl.float16)


FEWER_ROWS = {32: ("F32", "F16", "Q4_0", "Q8_0"), 64: ("Q4_0",)}
"""Formats that are compiled for fewer rows as well."""


def configurations_for(target: Target) -> Iterator[Configuration]:
    """Of tiles, on one device."""
    for fmt in LAYOUTS:
        for rows in (512, *(rows for rows, formats in FEWER_ROWS.items() if fmt in formats)):
            tile = dot_tile(target, fmt, rows)
            yield Configuration(
                f"products.tiles.{fmt}.7b.{rows}rows",
                product,
                {
                    **dict.fromkeys(("x", "y", "out"), "*fp32"),
                    "rows_at": "*i32",
                    **plane_types(fmt),
                    **dict.fromkeys(("n", "x_stride", "y_stride", "out_stride"), "i32"),
                },
                {
                    "K": 18944,
                    "FORMAT": fmt,
                    "TILE_ROWS": tile.rows,
                    "TILE": tile.columns,
                    "UNITS": tile.units,
                    "ADD": True,
                    "PTX": True,
                },
                divisible=("x", *plane_types(fmt), "y", "out", "n", "x_stride", "y_stride", "out_stride"),
                warps=tile.warps,
                stages=tile.stages,
                promises=Promises(tensor_cores=True),
                sampled=rows == 512 and fmt in ("Q4_0", "F16"),
            )
