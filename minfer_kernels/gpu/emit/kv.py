"""Stores into KV cells as launches."""

from __future__ import annotations

import triton

from minfer_ir.graph import Node
from minfer_kernels.gpu.emit.operands import strides
from minfer_kernels.gpu.emitter import Emit, Emitter, most_rows
from minfer_kernels.gpu.kernels import cells, kv_store

BLOCKS = 16


def _kv_store(e: Emitter, node: Node) -> None:
    region, values, at = e.sources(node)
    width = values.type.shape[1]
    e.launch(
        "kv.store",
        node,
        kv_store.store,
        (most_rows(values), triton.cdiv(width, 32 * BLOCKS)),
        values=e.tensor(values),
        region=e.bytes_at(region),
        cells=e.tensor(at),
        rows_at=e.rows_at(values),
        width=width,
        **strides(e, values=values),
        cell_bytes=e.row_stride(region),
        LAYOUT=cells.LAYOUTS[region.type.dtype.name],
        BLOCKS=BLOCKS,
    )


SITES = ("kv.store",)
EMITTERS: dict[str, Emit] = {"kv_store": _kv_store}
