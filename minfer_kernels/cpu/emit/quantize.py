"""Activations in 8-bit blocks."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_kernels.cpu.emit.operands import (
    block_of,
    row_operands,
)
from minfer_kernels.cpu.emitter import Emitter


def _quantize_act(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    e.call(f"quantize.rows[{block_of(node)}]", node, **row_operands(e, node, x=x))


def _swiglu_quantize(e: Emitter, node: Node) -> None:
    gate, up = e.sources(node)
    e.call(f"quantize.swiglu[{block_of(node)}]", node, **row_operands(e, node, gate=gate, up=up))


def _rms_norm_quantize(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    operands = row_operands(e, node, x=x)
    e.call(f"quantize.rms_norm[{block_of(node)}]", node, **operands, weight=e.at(weight), eps=node.attrs.eps)


EMITTERS = {"quantize_act": _quantize_act, "swiglu_quantize": _swiglu_quantize, "rms_norm_quantize": _rms_norm_quantize}
