"""Fused ops: each states the composition that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minfer_ir.dtypes import F32
from minfer_ir.formats.base import Format
from minfer_ir.ops.elementwise import ROW_OR_PARAM, rows, silu
from minfer_ir.ops.linear import quantized
from minfer_ir.ops.norm import NormAttrs, rms_norm
from minfer_ir.opspec import Array, FusedOp, NoAttrs, OpCase, Operand, f32
from minfer_ir.types import TensorType


class Swiglu(FusedOp):
    """silu(gate) * up, the gated activation of the feed-forward block (Shazeer 2020)."""

    name = "swiglu"
    switch = "swiglu"
    operands = (Operand("gate", "T H"), Operand("up", "T H"))
    inplace = ("gate", "up")

    def decompose(self, b: Any, attrs: NoAttrs, gate: Any, up: Any) -> Any:
        """mul(silu(gate), up)."""
        return b.mul(b.silu(gate), up)

    def infer(self, attrs: NoAttrs, gate: TensorType, up: TensorType) -> TensorType:
        """The type of `gate`."""
        return gate

    def reference(self, attrs: NoAttrs, gate: Array, up: Array) -> Array:
        """The composition."""
        return silu(gate) * up

    def cases(self) -> Sequence[OpCase]:
        """Widths around the vector size."""
        return [OpCase(f"{t}x{n}", (rows(t, n), rows(t, n)), {}) for t, n in ((1, 1), (3, 17), (2, 64))]


class AddRmsNorm(FusedOp):
    """The residual sum and its norm in one pass: parts (x + y, rms_norm(x + y)) side by side."""

    name = "add_rms_norm"
    switch = "add_rms_norm"
    operands = (Operand("x", "T H"), Operand("y", "T H"), Operand("weight", "H", ROW_OR_PARAM))
    Attrs = NormAttrs

    def decompose(self, b: Any, attrs: NormAttrs, x: Any, y: Any, weight: Any) -> Any:
        """(add(x, y), rms_norm(add(x, y), weight))."""
        total = b.add(x, y)
        return total, b.rms_norm(total, weight, eps=attrs.eps)

    def parts(self, attrs: NormAttrs, x: TensorType, y: TensorType, weight: TensorType) -> tuple[int, ...]:
        """The sum's width and the norm's."""
        return x.shape[1], x.shape[1]

    def infer(self, attrs: NormAttrs, x: TensorType, y: TensorType, weight: TensorType) -> TensorType:
        """`[T, 2 H]`."""
        return TensorType((x.shape[0], 2 * x.shape[1]), F32, x.rows)

    def reference(self, attrs: NormAttrs, x: Array, y: Array, weight: Array) -> Array:
        """The composition, joined along the features."""
        total = x + y
        return f32(np.concatenate([total, rms_norm(total, weight, attrs.eps)], axis=-1))

    def cases(self) -> Sequence[OpCase]:
        """Widths 1, prime, and a model's."""
        return [
            OpCase(f"{t}x{n}", (rows(t, n), rows(t, n), TensorType((n,), F32)), {"eps": 1e-5})
            for t, n in ((1, 1), (3, 17), (2, 576))
        ]


@dataclass(frozen=True, slots=True)
class QuantizeAttrs:
    """`dtype` is the activation format of the result."""

    dtype: Format


@dataclass(frozen=True, slots=True)
class NormQuantizeAttrs:
    """`eps` as in rms_norm, `dtype` the activation format of the result."""

    eps: float
    dtype: Format


class RmsNormQuantize(FusedOp):
    """rms_norm whose result goes straight into 8-bit blocks."""

    name = "rms_norm_quantize"
    switch = "rms_norm_quantize"
    operands = (Operand("x", "T H"), Operand("weight", "H", ROW_OR_PARAM))
    Attrs = NormQuantizeAttrs

    def decompose(self, b: Any, attrs: NormQuantizeAttrs, x: Any, weight: Any) -> Any:
        """quantize_act(rms_norm(x, weight))."""
        return b.quantize_act(b.rms_norm(x, weight, eps=attrs.eps), dtype=attrs.dtype)

    def infer(self, attrs: NormQuantizeAttrs, x: TensorType, weight: TensorType) -> TensorType:
        """The shape of `x`, quantized."""
        return quantized(self.name, attrs.dtype, x)

    def reference(self, attrs: NormQuantizeAttrs, x: Array, weight: Array) -> Array:
        """The norm; storing the result rounds it."""
        return rms_norm(x, weight, attrs.eps)

    def cases(self) -> Sequence[OpCase]:
        """Both block sizes."""
        return [
            OpCase(f"{d}_{t}x{n}", (rows(t, n), TensorType((n,), F32)), {"eps": 1e-5, "dtype": d})
            for d, t, n in (("Q8A32", 1, 32), ("Q8A32", 3, 576), ("Q8A256", 3, 512))
        ]


class SwigluQuantize(FusedOp):
    """swiglu whose result goes straight into 8-bit blocks."""

    name = "swiglu_quantize"
    switch = "swiglu_quantize"
    operands = (Operand("gate", "T H"), Operand("up", "T H"))
    Attrs = QuantizeAttrs

    def decompose(self, b: Any, attrs: QuantizeAttrs, gate: Any, up: Any) -> Any:
        """quantize_act(swiglu(gate, up))."""
        return b.quantize_act(b.swiglu(gate, up), dtype=attrs.dtype)

    def infer(self, attrs: QuantizeAttrs, gate: TensorType, up: TensorType) -> TensorType:
        """The shape of `gate`, quantized."""
        return quantized(self.name, attrs.dtype, gate)

    def reference(self, attrs: QuantizeAttrs, gate: Array, up: Array) -> Array:
        """The activation; storing the result rounds it."""
        return silu(gate) * up

    def cases(self) -> Sequence[OpCase]:
        """Both block sizes."""
        return [
            OpCase(f"{d}_{t}x{n}", (rows(t, n), rows(t, n)), {"dtype": d})
            for d, t, n in (("Q8A32", 1, 32), ("Q8A32", 3, 96), ("Q8A256", 3, 512))
        ]
