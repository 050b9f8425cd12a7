"""Matrix products whose results are worked on where they are made, before they reach memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minfer_ir.dtypes import F32
from minfer_ir.ops.composed import ComposedOp
from minfer_ir.ops.elementwise import ROW_OR_PARAM, rows
from minfer_ir.ops.fused import QuantizeAttrs
from minfer_ir.opspec import NoAttrs, OpCase, Operand
from minfer_ir.types import TensorType, element_type

SOME_FORMATS = ("F32", "Q4_1", "Q6_K")
"""One of every kind of weight; matmul's cases have all formats, and the products here are made by the same code."""
ACTIVATIONS = Operand("x", "T K", ("activation",))


class MatMulAdd(ComposedOp):
    """A product plus a value of its shape (a residual) or one row (a bias)."""

    name = "matmul_add"
    switch = "matmul_add"
    operands = (ACTIVATIONS, Operand("weight", "N K", ("weight",)), Operand("y", "*", ROW_OR_PARAM))
    inplace = ("y",)

    def decompose(self, b: Any, attrs: NoAttrs, x: Any, weight: Any, y: Any) -> Any:
        """add(matmul(x, weight), y)."""
        return b.add(b.matmul(x, weight), y)

    def cases(self) -> Sequence[OpCase]:
        """Some weight formats, a residual and a bias, widths off the groups of rows."""
        return [
            OpCase(f"{name}_{t}x{n}x{k}" + ("_bias" if bias else ""), (rows(t, k), _weight(name, n, k), y), {})
            for name in SOME_FORMATS
            for t, n, k, bias in ((1, 17, 256, False), (3, 40, 512, False), (5, 17, 256, True))
            for y in (TensorType((n,), F32) if bias else rows(t, n),)
        ]


class MatMulSwiglu(ComposedOp):
    """The gated half of a feed-forward block: silu(x @ gate_weight.T) * (x @ up_weight.T)."""

    name = "matmul_swiglu"
    switch = "matmul_swiglu"
    operands = (
        ACTIVATIONS,
        Operand("gate_weight", "N K", ("weight",)),
        Operand("up_weight", "N K", ("weight",)),
    )

    def decompose(self, b: Any, attrs: NoAttrs, x: Any, gate_weight: Any, up_weight: Any) -> Any:
        """swiglu(matmul(x, gate_weight), matmul(x, up_weight))."""
        return b.swiglu(b.matmul(x, gate_weight), b.matmul(x, up_weight))

    def cases(self) -> Sequence[OpCase]:
        """Some weight formats, widths off the groups of rows."""
        return [
            OpCase(f"{name}_{t}x{n}x{k}", (rows(t, k), _weight(name, n, k), _weight(name, n, k)), {})
            for name in SOME_FORMATS
            for t, n, k in ((1, 17, 256), (3, 40, 512))
        ]


class MatMulSwigluQuantize(ComposedOp):
    """matmul_swiglu whose result goes straight into 8-bit blocks."""

    name = "matmul_swiglu_quantize"
    switch = "matmul_swiglu_quantize"
    operands = MatMulSwiglu.operands
    Attrs = QuantizeAttrs

    def decompose(self, b: Any, attrs: QuantizeAttrs, x: Any, gate_weight: Any, up_weight: Any) -> Any:
        """quantize_act(matmul_swiglu(x, gate_weight, up_weight))."""
        return b.quantize_act(b.matmul_swiglu(x, gate_weight, up_weight), dtype=attrs.dtype)

    def cases(self) -> Sequence[OpCase]:
        """Some weight formats with both block sizes, as many blocks as two threads share evenly."""
        return [
            OpCase(
                f"{name}_{dtype}_{t}x{n}x{k}", (rows(t, k), _weight(name, n, k), _weight(name, n, k)), {"dtype": dtype}
            )
            for name in SOME_FORMATS
            for dtype, t, n, k in (("Q8A32", 1, 64, 256), ("Q8A32", 3, 128, 512), ("Q8A256", 3, 512, 256))
        ]


def _weight(name: str, n: int, k: int) -> TensorType:
    return TensorType((n, k), element_type(name))
