"""Rows of float32 into KV cells."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels import cells as kv


@triton.jit
def store(values, region, cells, rows_at, width, values_stride, cell_bytes, LAYOUT: tl.constexpr, BLOCKS: tl.constexpr):
    """BLOCKS blocks of 32 elements of row t of `values` into cell `cells[t]`; what lies behind the last one too."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    x = tl.load(values + row * values_stride + at, mask=at < width, other=0.0)
    kv.store_blocks(kv.cell_row(region, tl.load(cells + row), cell_bytes), block, x, width, cell_bytes, LAYOUT)


CONFIGURATIONS = tuple(
    Configuration(
        f"kv_store.{name}",
        store,
        {
            "values": "*fp32",
            "region": "*u8",
            **dict.fromkeys(("cells", "rows_at"), "*i32"),
            **dict.fromkeys(("width", "values_stride", "cell_bytes"), "i32"),
        },
        {"LAYOUT": layout, "BLOCKS": 16},
        divisible=("values", "region", "width", "values_stride", "cell_bytes"),
        promises=Promises(wide_loads=True),
        sampled=name == "q8_0",
    )
    for name, layout in kv.LAYOUTS.items()
)
