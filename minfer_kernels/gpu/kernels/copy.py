"""Copies: of strided values, of rows by index, and of cells."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises


@triton.jit
def strided(x, out, rows_at, width, n2, n3, x_stride, out_stride, stride1, stride2, stride3, BLOCK: tl.constexpr):
    """BLOCK of a row's `width` = n1 n2 n3 elements, `strideN` elements apart along each axis, side by side in out."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i, j, k = (at // n3 // n2).to(tl.int64), (at // n3 % n2).to(tl.int64), (at % n3).to(tl.int64)
    values = tl.load(x + row * x_stride + i * stride1 + j * stride2 + k * stride3, mask=at < width)
    tl.store(out + row * out_stride + at, values, mask=at < width)


@triton.jit
def rows_between(source, target, from_rows, to_rows, width, BLOCK: tl.constexpr):
    """BLOCK elements of row `from_rows[i]` (int32) of `source` to row `to_rows[i]` of `target`, for i of the grid."""
    i = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    came, goes = tl.load(from_rows + i).to(tl.int64) * width, tl.load(to_rows + i).to(tl.int64) * width
    tl.store(target + goes + at, tl.load(source + came + at, mask=at < width), mask=at < width)


CONFIGURATIONS = (
    Configuration(
        "copy.strided",
        strided,
        {
            **dict.fromkeys(("x", "out"), "*fp32"),
            "rows_at": "*i32",
            **dict.fromkeys(("width", "n2", "n3", "x_stride", "out_stride"), "i32"),
            **dict.fromkeys(("stride1", "stride2", "stride3"), "i32"),
        },
        {"BLOCK": 1024},
        divisible=("x", "out", "width", "n3", "x_stride", "out_stride", "stride1", "stride2"),
    ),
    Configuration(
        "copy.cells",
        rows_between,
        {**dict.fromkeys(("source", "target", "from_rows", "to_rows"), "*i32"), "width": "i32"},
        {"BLOCK": 512},
        divisible=("source", "target", "width"),
        promises=Promises(wide_loads=True),
        sampled=True,
    ),
)
