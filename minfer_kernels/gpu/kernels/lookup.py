"""Rows of a table by index: of float activations, and of weights as planes, decoded to the bits of their format."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.planes.decode import store_weights
from minfer_kernels.gpu.planes.layouts import LAYOUTS


@triton.jit
def floats(table, ids, out, rows_at, width, table_stride, out_stride, BLOCK: tl.constexpr):
    """BLOCK elements of row `ids[t]` of a table of float32, float16 or bfloat16, as float32."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(table + tl.load(ids + row).to(tl.int64) * table_stride + at, mask=at < width)
    tl.store(out + row * out_stride + at, found.to(tl.float32), mask=at < width)


@triton.jit
def blocks(
    quants, high, scales, sub, ids, out, rows_at, out_stride,
    K: tl.constexpr, FORMAT: tl.constexpr, PTX: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """UNITS units of 32 elements of row `ids[t]` of a quantized matrix with K columns."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    found = tl.load(ids + row)
    inside = unit < K // 32
    store_weights(out + row * out_stride, quants, high, scales, sub, found, unit, inside, K, FORMAT, PTX)


WIDTH = 3584
_TYPES = {"f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "i32": "*i32", "i16": "*i16"}
_OUT = {"ids": "*i32", "out": "*fp32", "rows_at": "*i32", "out_stride": "i32"}


def _planes(name: str) -> dict[str, str]:
    """The pointers to a format's planes; those that it lacks are never read."""
    held = {plane.name: _TYPES[plane.dtype] for plane in LAYOUTS[name].planes}
    return {plane: held.get(plane, held["quants"]) for plane in ("quants", "high", "scales", "sub")}


CONFIGURATIONS = (
    *(
        Configuration(
            f"lookup.floats[{dtype}]",
            floats,
            {"table": _TYPES[dtype], **_OUT, "width": "i32", "table_stride": "i32"},
            {"BLOCK": 1024},
            divisible=("table", "out", "width", "table_stride", "out_stride"),
            promises=Promises(wide_loads=True),
        )
        for dtype in ("f32", "f16", "bf16")
    ),
    *(
        Configuration(
            f"lookup.blocks[{name}]",
            blocks,
            {**_planes(name), **_OUT},
            {"K": WIDTH, "FORMAT": name, "PTX": True, "UNITS": 32},
            divisible=("quants", "high", "scales", "sub", "out", "out_stride"),
            sampled=name == "Q6_K",
        )
        for name, layout in LAYOUTS.items()
        if layout.bits
    ),
)
