"""Views made contiguous."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_kernels.cpu.emitter import Emitter


def _contiguous(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    rank = len(node.type.shape)
    inner = (*[1] * (4 - rank), *node.type.shape[1:]) if rank > 1 else (1, 1, 1)
    strides = [0] * (4 - rank) + [e.stride(x, a) for a in range(1, rank)] if rank > 1 else [0, 0, 0]
    e.call(
        "copy.strided",
        node,
        x=e.at(x),
        out=e.at(node),
        rows_at=e.rows_at(node) if rank > 1 or node.type.rows else e.count(node.type.shape[0]),
        **dict(zip(("n1", "n2", "n3"), inner, strict=True)),
        x_stride=e.stride(x, 0),
        **dict(zip(("stride1", "stride2", "stride3"), strides, strict=True)),
    )


EMITTERS = {"contiguous": _contiguous}
