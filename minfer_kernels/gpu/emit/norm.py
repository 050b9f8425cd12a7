"""Norms and the softmax as launches: a program holds a whole row, or some heads of one."""

from __future__ import annotations

from typing import Any

import triton

from minfer_ir.graph import Node
from minfer_kernels.gpu.emit.operands import BLOCK, RowTile, row_operands, too_wide
from minfer_kernels.gpu.emitter import Emit, Emitter, Refusal, most_rows, row_width
from minfer_kernels.gpu.kernels import norm


def _rms_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    tile = RowTile.of(node.type.shape[1])
    operands = {**row_operands(e, node, x=x), "weight": e.tensor(weight), "eps": node.attrs.eps}
    e.launch("norm.rms_norm", node, norm.rms_norm, (most_rows(node),), tile.warps, **operands, WIDE=tile.wide)


def _add_rms_norm(e: Emitter, node: Node) -> None:
    x, y, weight = e.sources(node)
    width = x.type.shape[1]
    tile, total = RowTile.of(width), e.tensor(node)
    operands = {**row_operands(e, node, x=x, y=y), "weight": e.tensor(weight), "eps": node.attrs.eps}
    parts = {"width": width, "total": total[:, :width], "out": total[:, width:]}
    operands |= {**parts, "total_stride": operands["out_stride"]}
    e.launch("norm.add_rms_norm", node, norm.add_rms_norm, (most_rows(node),), tile.warps, **operands, WIDE=tile.wide)


def head_tile(head_dim: int) -> dict[str, Any]:
    """HEADS of WIDE elements: some 1024 of them."""
    wide = triton.next_power_of_2(head_dim)
    return {"HEADS": max(1, BLOCK // wide), "WIDE": wide}


def _qk_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    _, n_heads, head_dim = node.type.shape
    operands = {**row_operands(e, node, x=x), "weight": e.tensor(weight), "eps": node.attrs.eps}
    del operands["width"]
    tile = head_tile(head_dim)
    grid = (most_rows(node), triton.cdiv(n_heads, tile["HEADS"]))
    e.launch("norm.qk_norm", node, norm.qk_norm, grid, **operands, n_heads=n_heads, head_dim=head_dim, **tile)


def _softmax(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    operands = row_operands(e, node, x=x)
    # A vector of rows has one element a row: the softmax runs over all of them.
    tile = RowTile.of(operands["width"])
    grid = (most_rows(node), row_width(node) // operands["width"])
    e.launch("norm.softmax", node, norm.softmax, grid, tile.warps, **operands, WIDE=tile.wide)


SITES = ("norm.rms_norm", "norm.add_rms_norm", "norm.qk_norm", "norm.softmax")
EMITTERS: dict[str, Emit] = {
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "qk_norm": _qk_norm,
    "softmax": _softmax,
}
REFUSALS: dict[str, Refusal] = dict.fromkeys(EMITTERS, too_wide)
