"""Root-mean-square norms and the softmax: a program holds whole rows in its registers and reduces them as one tile.

A sum has one order: that of the tile, whose size follows from the row's width alone.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels.lanes import inverse_rms

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def rms_norm(x, weight, out, rows_at, width, x_stride, out_stride, eps, WIDE: tl.constexpr):
    """One row of float32: out = x / sqrt(mean(x^2) + eps) * weight."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    norm_row(row, x, weight, out, width, x_stride, out_stride, eps, WIDE)


@triton.jit
def norm_row(row, x, weight, out, width, x_stride, out_stride, eps, WIDE: tl.constexpr):
    """The norm of one row."""
    at = tl.arange(0, WIDE)
    inside = at < width
    values = tl.load(x + row * x_stride + at, mask=inside, other=0.0)
    inverse = inverse_rms(tl.sum(values * values, 0), width, eps)
    tl.store(out + row * out_stride + at, values * inverse * tl.load(weight + at, mask=inside), mask=inside)


@triton.jit
def add_rms_norm(
    x, y, weight, total, out, rows_at, width, x_stride, y_stride, total_stride, out_stride, eps, WIDE: tl.constexpr
):
    """One row of float32: total = x + y; out = the norm of total."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    at = tl.arange(0, WIDE)
    inside = at < width
    values = tl.load(x + row * x_stride + at, mask=inside, other=0.0)
    values += tl.load(y + row * y_stride + at, mask=inside, other=0.0)
    tl.store(total + row * total_stride + at, values, mask=inside)
    inverse = inverse_rms(tl.sum(values * values, 0), width, eps)
    tl.store(out + row * out_stride + at, values * inverse * tl.load(weight + at, mask=inside), mask=inside)


@triton.jit
def qk_norm(
    x, weight, out, rows_at, n_heads, head_dim, x_stride, out_stride, eps, HEADS: tl.constexpr, WIDE: tl.constexpr
):
    """HEADS heads of one row, each normed on its own; all share the weight."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    head, i = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None], tl.arange(0, WIDE)[None, :]
    inside = (head < n_heads) & (i < head_dim)
    values = tl.load(x + row * x_stride + head * head_dim + i, mask=inside, other=0.0)
    inverse = inverse_rms(tl.sum(values * values, 1), head_dim, eps)[:, None]
    weights = tl.load(weight + i, mask=i < head_dim)
    tl.store(out + row * out_stride + head * head_dim + i, values * inverse * weights, mask=inside)


@triton.jit
def softmax(x, out, rows_at, width, x_stride, out_stride, WIDE: tl.constexpr):
    """`width` float32 of a row, piece by piece: exp(x - max) over its sum."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    at = tl.arange(0, WIDE)
    inside = at < width
    piece = tl.program_id(1) * width
    values = tl.load(x + row * x_stride + piece + at, mask=inside, other=float("-inf"))
    powers = tl.where(inside, tl.exp2((values - tl.max(values, 0)) * _LOG2_E), 0.0)
    tl.store(out + row * out_stride + piece + at, powers / tl.sum(powers, 0), mask=inside)


WIDTHS = ((576, 1024, 2), (1024, 1024, 2), (3584, 4096, 8), (16384, 16384, 16))
"""Of models (SmolLM2, Qwen3-0.6B, Qwen2.5-7B, Llama-3.1-405B), with the tile and the warps that the emitter chooses."""
_ROW = {"rows_at": "*i32", "width": "i32", "x_stride": "i32", "out_stride": "i32"}
CONFIGURATIONS = (
    *(
        Configuration(
            f"norm.rms_norm[{width}]",
            rms_norm,
            {**dict.fromkeys(("x", "weight", "out"), "*fp32"), **_ROW, "eps": "fp32"},
            {"WIDE": wide},
            divisible=("x", "weight", "out", "width", "x_stride", "out_stride"),
            warps=warps,
            promises=Promises(wide_loads=True),
        )
        for width, wide, warps in WIDTHS
    ),
    *(
        Configuration(
            f"norm.add_rms_norm[{width}]",
            add_rms_norm,
            {
                **dict.fromkeys(("x", "y", "weight", "total", "out"), "*fp32"),
                **_ROW,
                **dict.fromkeys(("y_stride", "total_stride"), "i32"),
                "eps": "fp32",
            },
            {"WIDE": wide},
            divisible=(
                "x",
                "y",
                "weight",
                "total",
                "out",
                "width",
                *(f"{n}_stride" for n in ("x", "y", "total", "out")),
            ),
            warps=warps,
            promises=Promises(wide_loads=True),
            sampled=width == 3584,
        )
        for width, wide, warps in WIDTHS
    ),
    Configuration(
        "norm.qk_norm[128]",
        qk_norm,
        {
            **dict.fromkeys(("x", "weight", "out"), "*fp32"),
            "rows_at": "*i32",
            **dict.fromkeys(("n_heads", "head_dim", "x_stride", "out_stride"), "i32"),
            "eps": "fp32",
        },
        {"HEADS": 8, "WIDE": 128},
        divisible=("x", "weight", "out", "head_dim", "x_stride", "out_stride"),
        promises=Promises(wide_loads=True),
    ),
    Configuration(
        "norm.softmax[1024]",
        softmax,
        {"x": "*fp32", "out": "*fp32", **_ROW},
        {"WIDE": 1024},
        divisible=("x", "out", "width", "x_stride", "out_stride"),
        warps=2,
    ),
)
