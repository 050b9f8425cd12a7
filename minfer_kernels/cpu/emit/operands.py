"""Operands that kernels of several areas share."""

from __future__ import annotations

from collections.abc import Mapping

from minfer_ir.formats.base import Format
from minfer_ir.graph import Node
from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.rope import RopeAttrs
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.runner.tape import Place, Stretch
from minfer_kernels.cpu.weights.packing import PackedWeight


def row_operands(e: Emitter, node: Node, **sources: Node) -> dict[str, int]:
    """The operands of kernels over rows: each source and `out` with its row stride, the rows and their width."""
    at: dict[str, int] = {name: e.at(source) for name, source in sources.items()}
    strides = {f"{name}_stride": e.row_stride(source) for name, source in sources.items()}
    shared = {"out": e.at(node), "rows_at": e.rows_at(node), "width": node.type.shape[1]}
    return {**at, **strides, **shared, "out_stride": e.row_stride(node)}


def head_operands(e: Emitter, node: Node, name: str, source: Node) -> dict[str, int]:
    """The operands of kernels over heads: `source` and `out` `[rows, heads, head_dim]` with their strides."""
    _, n_heads, head_dim = node.type.shape
    shared = {"rows_at": e.rows_at(node), "n_heads": n_heads, "head_dim": head_dim}
    places: dict[str, int] = {name: e.at(source), "out": e.at(node)}
    for label, value in ((name, source), ("out", node)):
        places[f"{label}_stride"], places[f"{label}_head_stride"] = e.stride(value, 0), e.stride(value, 1)
    return {**places, **shared}


def packed_weight(e: Emitter, weight: Node) -> tuple[PackedWeight, Place]:
    """A weight as a product reads it, and its place."""
    packed = e.weights[weight.id].packed
    assert packed is not None, f"{weight.name} was registered without a packed form"
    return packed, Place(packed.address, e.weight_text(weight))


def shared_weight(packed: PackedWeight, rows: int) -> Stretch:
    """The weight as threads share it, in units of `rows`."""
    layout = packed.layout
    return Stretch(packed.address, -(-packed.n // rows), rows // layout.rows * layout.group_bytes(packed.k))


def rope_operands(e: Emitter, node: Node, named: Mapping[str, Node]) -> dict[str, int]:
    """Positions and the table of angles; zeros for an op that doesn't rotate."""
    if not isinstance(node.attrs, RopeAttrs):
        return {"positions": 0, "table": 0, "table_stride": 0, "dims": 0}
    factors = named.get("factors")
    table = e.tables(plain_rope(node.attrs), e.binding.weights[factors.id] if factors else None)
    at = Place(table.ctypes.data, "rope table")
    positions = e.at(named["positions"])
    return {"positions": positions, "table": at, "table_stride": table.strides[0], "dims": node.attrs.dims}


def cell_operands(e: Emitter, named: Mapping[str, Node], x: Node) -> dict[str, int]:
    """The region that x goes into, which of its cells, and their bytes."""
    region = named["region"]
    places = {"region": e.at(region), "cells": e.at(named["cells"]), "rows_at": e.rows_at(x)}
    return {**places, "cell_bytes": e.row_stride(region)}


def block_of(node: Node) -> int:
    """Elements per block of a node's activation format."""
    assert isinstance(node.type.dtype, Format)
    return node.type.dtype.block_size
