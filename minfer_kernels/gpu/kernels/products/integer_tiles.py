"""Products of many rows of 8-bit activations: bytes of weights and activations meet in the tensor cores.

The canonical order: units of 32 terms ascending, each one's exact integer sum scaled in float32 as in `dots` and added
to the total. Where a sub-scale belongs to 16 weights, the halves of a unit are products of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels.products.choices import integer_tile
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
    ADD: tl.constexpr,
    PTX: tl.constexpr,
):
    """out = x @ weight.T, plus `y` where ADD: TILE_ROWS x TILE of the result; x 8-bit blocks, y and out float32."""
    n_rows = tl.load(rows_at)
    if tl.program_id(0) * TILE_ROWS >= n_rows:
        return
    token = tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)
    begin = x + token.to(tl.int64) * x_stride
    live = token < n_rows
    total = tl.zeros([TILE_ROWS, TILE], tl.float32)
    for unit in range(K // 32):
        bytes_at = begin.to(tl.pointer_type(tl.int8))[:, None] + unit * 32 + tl.arange(0, 32)[None, :]
        a = tl.load(bytes_at, mask=live[:, None], other=0)
        w = _signed_bytes(quants, high, row, n, unit, K, FORMAT, PTX)
        if decode.has_sub(FORMAT):
            total += _super_block(a, w, begin, live, scales, sub, row, n, unit, K, FORMAT)
        else:
            total += _block(a, w, begin, live, scales, row, n, unit, K, FORMAT)
    inside = live[:, None] & (row < n)[None, :]
    if ADD:
        total += tl.load(y + token.to(tl.int64)[:, None] * y_stride + row[None, :], mask=inside, other=0.0)
    tl.store(out + token.to(tl.int64)[:, None] * out_stride + row[None, :], total, mask=inside)


@triton.jit
def _block(a, w, begin, live, scales, row, n, unit, K: tl.constexpr, FORMAT: tl.constexpr):
    """What a unit adds, where a block of 32 has one scale."""
    CENTRE: tl.constexpr = decode.centre_of(FORMAT)
    d, minimum = decode.load_scales(scales, row, unit, row < n, K, FORMAT)
    floats = (begin + K).to(tl.pointer_type(tl.float32))
    x_d = tl.load(floats + unit, mask=live, other=0.0)
    sums = tl.load((floats + K // 32).to(tl.pointer_type(tl.int32)) + unit, mask=live, other=0)
    dot = tl.dot(a, tl.trans(w), out_dtype=tl.int32)
    if CENTRE > 0:
        dot -= CENTRE * sums[:, None]
    added = dot.to(tl.float32) * (d[None, :] * x_d[:, None])
    if decode.has_minimum(FORMAT):
        added += minimum[None, :] * (x_d * sums.to(tl.float32))[:, None]
    return added


@triton.jit
def _super_block(a, w, begin, live, scales, sub, row, n, unit, K: tl.constexpr, FORMAT: tl.constexpr):
    """What a unit of a K-quant adds: its sums of scaled halves stay below 2 ** 24, as in `dots`."""
    CENTRE: tl.constexpr = decode.centre_of(FORMAT)
    d, minimum = decode.load_scales(scales, row, unit // 8, row < n, K, FORMAT)
    first, second, offset, other = decode.load_sub(sub, row, unit, row < n, K, FORMAT)
    floats = (begin + K).to(tl.pointer_type(tl.float32))
    x_d = tl.load(floats + unit // 8, mask=live, other=0.0)
    halves = (floats + K // 256).to(tl.pointer_type(tl.int16)) + unit * 2
    sums = tl.load(halves, mask=live, other=0).to(tl.int32)
    rest = tl.load(halves + 1, mask=live, other=0).to(tl.int32)
    if decode.whole_units(FORMAT):
        dot = first[None, :] * tl.dot(a, tl.trans(w), out_dtype=tl.int32)
        offsets = offset[None, :] * (sums + rest)[:, None]
    else:
        lower = (tl.arange(0, 32) < 16)[None, :]
        zero = tl.zeros_like(w)
        dot = first[None, :] * (
            tl.dot(a, tl.trans(tl.where(lower, w, zero)), out_dtype=tl.int32) - CENTRE * sums[:, None]
        )
        dot += second[None, :] * (
            tl.dot(a, tl.trans(tl.where(lower, zero, w)), out_dtype=tl.int32) - CENTRE * rest[:, None]
        )
        offsets = offset[None, :] * sums[:, None] + other[None, :] * rest[:, None]
    if decode.has_minimum(FORMAT):
        return (dot.to(tl.float32) * d[None, :] - offsets.to(tl.float32) * minimum[None, :]) * x_d[:, None]
    else:
        return dot.to(tl.float32) * d[None, :] * x_d[:, None]


@triton.jit
def _signed_bytes(quants, high, row, n, unit, K: tl.constexpr, FORMAT: tl.constexpr, PTX: tl.constexpr):
    """A unit of rows as int8 `[rows, 32]`, in the order of the activations; unsigned quants stay below 64."""
    at = row[:, None]
    low, upper = decode.load_quads(quants, high, at, tl.zeros_like(at) + unit, at < n, K, FORMAT, PTX)
    whole = tl.join(_apart(low), _apart(upper))
    # [rows, quad, byte / 2, byte % 2, half] to the order of elements.
    return tl.reshape(tl.permute(whole, (0, 4, 1, 2, 3)), [row.shape[0], 32])


@triton.jit
def _apart(quads):
    """Quads `[rows, 4]` as int8 `[rows, 4, 2, 2]`."""
    even = tl.join(quads.to(tl.int8), (quads >> 16).to(tl.int8))
    odd = tl.join((quads >> 8).to(tl.int8), (quads >> 24).to(tl.int8))
    return tl.join(even, odd)


def configurations_for(target: Target) -> Iterator[Configuration]:
    """Of integer tiles, on one device."""
    for fmt, layout in LAYOUTS.items():
        if not layout.bits:
            continue
        for rows, k in ((512, 18944), *((32, 18944),) * (fmt in ("Q4_0", "Q6_K"))):
            tile = integer_tile(target, fmt, rows)
            yield Configuration(
                f"products.integer_tiles.{fmt}.7b.{rows}rows",
                product,
                {
                    **dict.fromkeys(("y", "out"), "*fp32"),
                    "x": "*u8",
                    "rows_at": "*i32",
                    **plane_types(fmt),
                    **dict.fromkeys(("n", "x_stride", "y_stride", "out_stride"), "i32"),
                },
                {"K": k, "FORMAT": fmt, "TILE_ROWS": tile.rows, "TILE": tile.columns, "ADD": True, "PTX": True},
                divisible=("x", *plane_types(fmt), "y", "out", "n", "x_stride", "y_stride", "out_stride"),
                warps=tile.warps,
                stages=tile.stages,
                promises=Promises(tensor_cores=True),
                sampled=rows == 512 and fmt in ("Q4_0", "Q6_K"),
            )
