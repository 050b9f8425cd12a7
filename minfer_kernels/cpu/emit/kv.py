"""Rows into KV cells."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_kernels.cpu.emitter import Emitter


def _kv_store(e: Emitter, node: Node) -> None:
    region, values, cells = e.sources(node)
    e.call(
        f"kv_store.rows[{region.type.dtype.name}]",
        node,
        values=e.at(values),
        region=e.at(region),
        cells=e.at(cells),
        rows_at=e.rows_at(values),
        width=values.type.shape[1],
        values_stride=e.row_stride(values),
        cell_bytes=e.row_stride(region),
    )


EMITTERS = {"kv_store": _kv_store}
