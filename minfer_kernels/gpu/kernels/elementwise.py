"""Sums, products and activations, element by element over rows."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration
from minfer_kernels.gpu.kernels.lanes import silu as silu_of


@triton.jit
def binary(x, y, out, rows_at, width, x_stride, y_stride, out_stride, period, OP: tl.constexpr, BLOCK: tl.constexpr):
    """One row's stretch of BLOCK float32: out = OP of x and y, `y` repeating after `period` elements of a row.

    OP is "add", "mul", or "swiglu": silu(x) * y.
    """
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    a = tl.load(x + row * x_stride + at, mask=inside)
    b = tl.load(y + row * y_stride + at % period, mask=inside)
    if OP == "swiglu":
        a = silu_of(a)
    tl.store(out + row * out_stride + at, a + b if OP == "add" else a * b, mask=inside)


@triton.jit
def scale(x, out, rows_at, width, x_stride, out_stride, factor, BLOCK: tl.constexpr):
    """One row's stretch of BLOCK float32: out = x * factor."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    tl.store(out + row * out_stride + at, tl.load(x + row * x_stride + at, mask=inside) * factor, mask=inside)


@triton.jit
def silu(x, out, rows_at, width, x_stride, out_stride, BLOCK: tl.constexpr):
    """One row's stretch of BLOCK float32: out = x / (1 + exp(-x))."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    tl.store(out + row * out_stride + at, silu_of(tl.load(x + row * x_stride + at, mask=inside)), mask=inside)


_ROWS = {"rows_at": "*i32", "width": "i32", "x_stride": "i32", "out_stride": "i32"}
CONFIGURATIONS = (
    *(
        Configuration(
            f"elementwise.{op}",
            binary,
            {"x": "*fp32", "y": "*fp32", "out": "*fp32", **_ROWS, "y_stride": "i32", "period": "i32"},
            {"OP": op, "BLOCK": 1024},
            divisible=("x", "y", "out", "width", "x_stride", "y_stride", "out_stride", "period"),
            sampled=op == "swiglu",
        )
        for op in ("add", "mul", "swiglu")
    ),
    Configuration(
        "elementwise.scale",
        scale,
        {"x": "*fp32", "out": "*fp32", **_ROWS, "factor": "fp32"},
        {"BLOCK": 1024},
        divisible=("x", "out", "width", "x_stride", "out_stride"),
    ),
    Configuration(
        "elementwise.silu",
        silu,
        {"x": "*fp32", "out": "*fp32", **_ROWS},
        {"BLOCK": 1024},
        divisible=("x", "out", "width", "x_stride", "out_stride"),
    ),
)
