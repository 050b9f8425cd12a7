"""Rows of float32 into rows of 8-bit activations, plain or with what makes the values: the gate, a norm.

A row is `width` int8 quants, then the float32 scales of blocks, then the sums of their quants
(`minfer_ir.formats.activation`, whose bits these are). BLOCK is 32 with one sum a block, or 256 with SUMS of 16.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels.lanes import inverse_rms, rounded_even, silu

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_INFINITY = tl.constexpr(0x7F800000)
_NAN = tl.constexpr(0x7FC00000)
_SMALLEST_AMAX = tl.constexpr(1e-36)


@triton.jit
def quantized(values):
    """Blocks `[B, SUMS, BLOCK / SUMS]` float32 to their quants, int32, and the bits of their float32 scales `[B]`."""
    largest = tl.max(tl.max(values.to(tl.int32, bitcast=True) & _MAGNITUDE, 2), 1)
    finite = largest < _INFINITY
    amax = tl.where(finite, largest, 0).to(tl.float32, bitcast=True)
    tiny = amax < _SMALLEST_AMAX
    d = tl.where(tiny, 0.0, tl.div_rn(amax, 127.0))
    factor = tl.where(tiny, 0.0, tl.div_rn(127.0, tl.where(tiny, 1.0, amax)))
    quants = rounded_even(tl.where(finite[:, None, None], values, 0.0) * factor[:, None, None])
    return quants, tl.where(finite, d.to(tl.int32, bitcast=True), _NAN)


@triton.jit
def store_quantized(row, block, values, width, BLOCK: tl.constexpr):
    """Blocks `block` `[B]` of the row that begins at `row` (*u8): `values` `[B, SUMS, BLOCK / SUMS]` float32.

    Blocks at `width` or beyond are left out.
    """
    SUMS: tl.constexpr = values.shape[1]
    EACH: tl.constexpr = values.shape[2]
    quants, scales = quantized(values)
    inside = block * BLOCK < width
    part, each = tl.arange(0, SUMS), tl.arange(0, EACH)
    at = block[:, None, None] * BLOCK + part[None, :, None] * EACH + each[None, None, :]
    tl.store(row.to(tl.pointer_type(tl.int8)) + at, quants.to(tl.int8), mask=inside[:, None, None])
    tl.store((row + width).to(tl.pointer_type(tl.int32)) + block, scales, mask=inside)
    sums_at = row + width + width // BLOCK * 4
    sums, number = tl.sum(quants, 2), block[:, None] * SUMS + part[None, :]
    if BLOCK == 32:
        tl.store(sums_at.to(tl.pointer_type(tl.int32)) + number, sums, mask=inside[:, None])
    else:
        tl.store(sums_at.to(tl.pointer_type(tl.int16)) + number, sums.to(tl.int16), mask=inside[:, None])


@triton.jit
def rows(
    x, up, out, rows_at, width, x_stride, up_stride, out_stride,
    GATED: tl.constexpr, BLOCK: tl.constexpr, SUMS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of one row: x, or silu(x) * up where GATED. `out_stride` counts bytes."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    EACH: tl.constexpr = BLOCK // SUMS
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    at = block[:, None, None] * BLOCK + tl.arange(0, SUMS)[None, :, None] * EACH + tl.arange(0, EACH)[None, None, :]
    values = tl.load(x + row * x_stride + at, mask=at < width, other=0.0)
    if GATED:
        values = silu(values) * tl.load(up + row * up_stride + at, mask=at < width, other=0.0)
    store_quantized(out + row * out_stride, block, values, width, BLOCK)


@triton.jit
def rms_norm(
    x, weight, out, rows_at, width, x_stride, out_stride, eps,
    BLOCK: tl.constexpr, SUMS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One row: x / sqrt(mean(x^2) + eps) * weight. `out_stride` counts bytes."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    norm_row(row, x, weight, out, width, x_stride, out_stride, eps, BLOCK, SUMS, WIDE)


@triton.jit
def norm_row(
    row, x, weight, out, width, x_stride, out_stride, eps,
    BLOCK: tl.constexpr, SUMS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The norm of one row, quantized."""
    at = tl.arange(0, WIDE)
    values = tl.load(x + row * x_stride + at, mask=at < width, other=0.0)
    inverse = inverse_rms(tl.sum(values * values, 0), width, eps)
    normed = values * inverse * tl.load(weight + at, mask=at < width, other=0.0)
    shaped = tl.reshape(normed, [WIDE // BLOCK, SUMS, BLOCK // SUMS])
    store_quantized(out + row * out_stride, tl.arange(0, WIDE // BLOCK), shaped, width, BLOCK)


_STRIDES = ("x_stride", "out_stride")
CONFIGURATIONS = (
    *(
        Configuration(
            f"quantize.{'swiglu' if gated else 'rows'}[Q8A{block}]",
            rows,
            {
                **dict.fromkeys(("x", "up"), "*fp32"),
                "out": "*u8",
                "rows_at": "*i32",
                **dict.fromkeys(("width", "up_stride", *_STRIDES), "i32"),
            },
            {"GATED": gated, "BLOCK": block, "SUMS": block // 16 if block > 32 else 1, "BLOCKS": 1024 // block},
            divisible=("x", "up", "out", "width", "up_stride", *_STRIDES),
            promises=Promises(wide_loads=True),
            sampled=gated and block == 32,
        )
        for gated in (False, True)
        for block in (32, 256)
    ),
    *(
        Configuration(
            f"quantize.rms_norm[Q8A{block},{width}]",
            rms_norm,
            {
                **dict.fromkeys(("x", "weight"), "*fp32"),
                "out": "*u8",
                "rows_at": "*i32",
                **dict.fromkeys(("width", *_STRIDES), "i32"),
                "eps": "fp32",
            },
            {"BLOCK": block, "SUMS": block // 16 if block > 32 else 1, "WIDE": wide},
            divisible=("x", "weight", "out", "width", *_STRIDES),
            warps=warps,
            promises=Promises(wide_loads=True),
            sampled=(block, width) == (32, 3584),
        )
        for block, width, wide, warps in (
            (32, 576, 1024, 2),
            (32, 3584, 4096, 8),
            (256, 3584, 4096, 8),
            (256, 16384, 16384, 16),
        )
    ),
)
