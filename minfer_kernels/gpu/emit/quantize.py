"""Rows to 8-bit activations as launches, alone and with what makes the values."""

from __future__ import annotations

from typing import Any

import triton

from minfer_ir.formats.base import Format
from minfer_ir.graph import Node
from minfer_kernels.gpu.emit.operands import BLOCK, RowTile, row_operands, too_wide
from minfer_kernels.gpu.emitter import Emit, Emitter, Refusal, most_rows
from minfer_kernels.gpu.kernels import quantize


def blocks_of(node: Node) -> dict[str, Any]:
    """BLOCK and SUMS of a node's activation format."""
    assert isinstance(node.type.dtype, Format)
    size = node.type.dtype.block_size
    return {"BLOCK": size, "SUMS": 1 if size == 32 else size // 16}


def _quantized(e: Emitter, node: Node, **sources: Node) -> dict[str, Any]:
    """The operands of kernels that leave 8-bit rows; those count their stride in bytes."""
    return {**row_operands(e, node, **sources), "out_stride": e.row_stride(node), **blocks_of(node)}


def _quantize(e: Emitter, node: Node) -> None:
    x, *others = e.sources(node)
    operands, count = _quantized(e, node, x=x, up=others[0] if others else x), BLOCK // blocks_of(node)["BLOCK"]
    grid = (most_rows(node), triton.cdiv(node.type.shape[1], BLOCK))
    site = "quantize.swiglu" if others else "quantize.rows"
    e.launch(site, node, quantize.rows, grid, **operands, GATED=bool(others), BLOCKS=count)


def _rms_norm_quantize(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    tile = RowTile.of(node.type.shape[1], least=blocks_of(node)["BLOCK"])
    operands = {**_quantized(e, node, x=x), "weight": e.tensor(weight), "eps": node.attrs.eps}
    e.launch("quantize.rms_norm", node, quantize.rms_norm, (most_rows(node),), tile.warps, **operands, WIDE=tile.wide)


SITES = ("quantize.rows", "quantize.swiglu", "quantize.rms_norm")
EMITTERS: dict[str, Emit] = {
    **dict.fromkeys(("quantize_act", "swiglu_quantize"), _quantize),
    "rms_norm_quantize": _rms_norm_quantize,
}
REFUSALS: dict[str, Refusal] = {"rms_norm_quantize": too_wide}
