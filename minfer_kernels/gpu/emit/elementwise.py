"""add, mul, swiglu, scale and silu as launches."""

from __future__ import annotations

from typing import Any

import triton

from minfer_ir.graph import Node
from minfer_kernels.gpu.emit.operands import BLOCK, strides
from minfer_kernels.gpu.emitter import Emit, Emitter, most_rows, row_width
from minfer_kernels.gpu.kernels import elementwise


def _grid(node: Node) -> tuple[int, int]:
    return most_rows(node), triton.cdiv(row_width(node), BLOCK)


def _binary(op: str) -> Emit:
    def emit(e: Emitter, node: Node) -> None:
        x, y = e.sources(node)
        whole_rows = y.type.shape == x.type.shape
        e.launch(
            f"elementwise.{op}",
            node,
            elementwise.binary,
            _grid(node),
            x=e.tensor(x),
            y=e.tensor(y),
            out=e.tensor(node),
            rows_at=e.rows_at(node),
            width=row_width(node),
            **strides(e, x=x, out=node),
            y_stride=e.row_stride(y) // 4 if whole_rows else 0,
            period=row_width(node) if whole_rows else y.type.shape[-1],
            OP=op,
            BLOCK=BLOCK,
        )

    return emit


def _unary(op: str, kernel: Any) -> Emit:
    def emit(e: Emitter, node: Node) -> None:
        (x,) = e.sources(node)
        e.launch(
            f"elementwise.{op}",
            node,
            kernel,
            _grid(node),
            x=e.tensor(x),
            out=e.tensor(node),
            rows_at=e.rows_at(node),
            width=row_width(node),
            **strides(e, x=x, out=node),
            **({"factor": node.attrs.factor} if op == "scale" else {}),
            BLOCK=BLOCK,
        )

    return emit


SITES = tuple(f"elementwise.{op}" for op in ("add", "mul", "swiglu", "scale", "silu"))
EMITTERS: dict[str, Emit] = {
    **{op: _binary(op) for op in ("add", "mul", "swiglu")},
    "scale": _unary("scale", elementwise.scale),
    "silu": _unary("silu", elementwise.silu),
}
