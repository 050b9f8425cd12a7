"""Rows of tables by index as launches."""

from __future__ import annotations

import triton

from minfer_ir.graph import Node
from minfer_kernels.gpu.emit.operands import BLOCK, row_operands
from minfer_kernels.gpu.emitter import Emit, Emitter, most_rows
from minfer_kernels.gpu.kernels import lookup

UNITS = 32
"""Of 32 elements: a piece of a row."""


def _get_rows(e: Emitter, node: Node) -> None:
    table, ids = e.sources(node)
    planes = e.weights[table.id].planes if table.id in e.weights else {}
    operands = {**row_operands(e, node), "ids": e.tensor(ids)}
    if "quants" in planes:
        width = operands.pop("width")
        held = {name: planes.get(name, planes["quants"]) for name in ("quants", "high", "scales", "sub")}
        constants = {"K": width, "FORMAT": table.type.dtype.name, "PTX": e.ptx, "UNITS": UNITS}
        grid = (most_rows(node), triton.cdiv(width, 32 * UNITS))
        e.launch("lookup.blocks", node, lookup.blocks, grid, **operands, **held, **constants)
        return
    values = planes.get("values")
    rows = e.tensor(table) if values is None else values
    operands |= {"table": rows, "table_stride": e.row_stride(table) // 4 if values is None else rows.stride(0)}
    grid = (most_rows(node), triton.cdiv(operands["width"], BLOCK))
    e.launch("lookup.floats", node, lookup.floats, grid, **operands, BLOCK=BLOCK)


SITES = ("lookup.blocks", "lookup.floats")
EMITTERS: dict[str, Emit] = {"get_rows": _get_rows}
