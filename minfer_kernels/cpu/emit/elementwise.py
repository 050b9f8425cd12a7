"""Elementwise ops and softmax, over whole rows or over the last axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minfer_ir.graph import Node
from minfer_kernels.cpu.emitter import Emitter, row_width


def _binary(kernel: str) -> Callable[[Emitter, Node], None]:
    def emit(e: Emitter, node: Node) -> None:
        x, y = e.sources(node)
        # A vector belongs to the last axis: rows with more axes take it piece by piece.
        per_piece = y.type.shape != x.type.shape and len(x.type.shape) > 2
        for start, width in _pieces(node, per_piece):
            e.call(
                kernel,
                node,
                x=e.at(x, start),
                y=e.at(y, 0 if per_piece else start),
                out=e.at(node, start),
                rows_at=e.rows_at(node),
                width=width,
                x_stride=_stride(e, x),
                y_stride=_stride(e, y),
                out_stride=_stride(e, node),
            )

    return emit


def _unary(kernel: str) -> Callable[[Emitter, Node], None]:
    def emit(e: Emitter, node: Node) -> None:
        (x,) = e.sources(node)
        extra = {"factor": node.attrs.factor} if node.op == "scale" else {}
        for start, width in _pieces(node, node.op == "softmax" and len(node.type.shape) > 2):
            e.call(
                kernel,
                node,
                x=e.at(x, start),
                out=e.at(node, start),
                rows_at=e.rows_at(node),
                width=width,
                x_stride=_stride(e, x),
                out_stride=_stride(e, node),
                **extra,
            )

    return emit


def _pieces(node: Node, per_piece: bool) -> Iterator[tuple[int, int]]:
    """(first element, width) of each stretch of a row that one call takes: the last axis, or the whole row."""
    whole = row_width(node)
    width = node.type.shape[-1] if per_piece else whole
    return ((start, width) for start in range(0, whole, width))


def _stride(e: Emitter, node: Node) -> int:
    """Row stride, where a vector of rows (one element each) has one too."""
    return e.stride(node, 0) if node.type.rows and len(node.type.shape) == 1 else e.row_stride(node)


EMITTERS = {
    "add": _binary("elementwise.add"),
    "mul": _binary("elementwise.mul"),
    "swiglu": _binary("elementwise.swiglu"),
    "scale": _unary("elementwise.scale"),
    "silu": _unary("elementwise.silu"),
    "softmax": _unary("softmax.softmax"),
}
