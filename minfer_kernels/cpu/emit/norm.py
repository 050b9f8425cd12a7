"""Norms."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_kernels.cpu.emit.operands import (
    head_operands,
    row_operands,
)
from minfer_kernels.cpu.emitter import Emitter


def _rms_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    e.call("norm.rms_norm", node, **row_operands(e, node, x=x), weight=e.at(weight), eps=node.attrs.eps)


def _qk_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    e.call("norm.qk_norm", node, **head_operands(e, node, "x", x), weight=e.at(weight), eps=node.attrs.eps)


def _add_rms_norm(e: Emitter, node: Node) -> None:
    x, y, weight = e.sources(node)
    width = x.type.shape[1]
    parts: dict[str, int] = {"total": e.at(node), "total_stride": e.row_stride(node), "out": e.at(node, skip=width)}
    operands = {**row_operands(e, node, x=x, y=y), **parts, "width": width}
    e.call("norm.add_rms_norm", node, **operands, weight=e.at(weight), eps=node.attrs.eps)


EMITTERS = {"rms_norm": _rms_norm, "qk_norm": _qk_norm, "add_rms_norm": _add_rms_norm}
