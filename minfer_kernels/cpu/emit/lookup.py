"""Rows of a table by id."""

from __future__ import annotations

from minfer_ir.formats import FORMATS
from minfer_ir.graph import Node
from minfer_kernels.cpu.emit.operands import (
    row_operands,
)
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.runner.tape import Place
from minfer_kernels.cpu.weights.layouts import get_rows_kernel, packed_rows_kernel
from minfer_kernels.cpu.weights.pack_program import unpack_program
from minfer_kernels.cpu.weights.packing import PackedWeight


def _get_rows(e: Emitter, node: Node) -> None:
    table, ids = e.sources(node)
    if table.id in e.weights:
        packed, rows = e.weights[table.id].packed, e.weights[table.id].rows
        if packed is not None:
            _get_packed_rows(e, node, packed)
            return
        assert rows is not None, f"{table.name} was registered without its rows"
        at, stride = Place(rows.ctypes.data, e.weight_text(table)), rows.strides[0]
    else:
        at, stride = e.at(table), e.row_stride(table)
    kernel = get_rows_kernel(table.type.dtype.name.upper())
    e.call(kernel, node, **row_operands(e, node), table=at, table_stride=stride, ids=e.at(ids))


def _get_packed_rows(e: Emitter, node: Node, packed: PackedWeight) -> None:
    table, ids = e.sources(node)
    program = unpack_program(packed.layout)
    row_bytes = -(-FORMATS[packed.layout.format].row_bytes(packed.k) // 64) * 64
    e.call(
        packed_rows_kernel(packed.layout),
        node,
        **row_operands(e, node),
        table=Place(packed.address, e.weight_text(table)),
        program=Place(program.ctypes.data, f"unpack {packed.layout.name}"),
        terms=len(program),
        scratch=e.scratch(row_bytes),
        scratch_stride=row_bytes,
        ids=e.at(ids),
    )


EMITTERS = {"get_rows": _get_rows}
