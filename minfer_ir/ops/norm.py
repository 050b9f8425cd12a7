"""Root-mean-square norms (Zhang and Sennrich 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minfer_ir.dtypes import F32
from minfer_ir.ops.elementwise import ROW_OR_PARAM, rows
from minfer_ir.opspec import Array, Cost, Op, OpCase, Operand, f32
from minfer_ir.types import TensorType


@dataclass(frozen=True, slots=True)
class NormAttrs:
    """`eps` is added to the mean square before the root."""

    eps: float


class RmsNorm(Op):
    """Each row divided by its root mean square, times a weight."""

    name = "rms_norm"
    operands = (Operand("x", "T H"), Operand("weight", "H", ROW_OR_PARAM))
    Attrs = NormAttrs

    def infer(self, attrs: NormAttrs, x: TensorType, weight: TensorType) -> TensorType:
        """The type of `x`."""
        return x

    def reference(self, attrs: NormAttrs, x: Array, weight: Array) -> Array:
        """Evaluated in float64, rounded once."""
        return rms_norm(x, weight, attrs.eps)

    def cost(self, attrs: NormAttrs, out: TensorType, x: TensorType, weight: TensorType) -> Cost:
        """A square summed, and two products."""
        return Cost(4 * out.size, x.nbytes + out.nbytes + weight.nbytes, weight.nbytes)

    def cases(self) -> Sequence[OpCase]:
        """Widths 1, prime, and a model's."""
        return [
            OpCase(f"{t}x{n}", (rows(t, n), TensorType((n,), F32)), {"eps": 1e-5})
            for t, n in ((1, 1), (3, 17), (2, 576))
        ]


class QkNorm(Op):
    """RMS norm of every head on its own, with one weight for all heads (Qwen3's q and k norm)."""

    name = "qk_norm"
    operands = (Operand("x", "T N D"), Operand("weight", "D", ROW_OR_PARAM))
    Attrs = NormAttrs

    def infer(self, attrs: NormAttrs, x: TensorType, weight: TensorType) -> TensorType:
        """The type of `x`."""
        return x

    def reference(self, attrs: NormAttrs, x: Array, weight: Array) -> Array:
        """Evaluated in float64, rounded once."""
        return rms_norm(x, weight, attrs.eps)

    def cost(self, attrs: NormAttrs, out: TensorType, x: TensorType, weight: TensorType) -> Cost:
        """A square summed, and two products."""
        return Cost(4 * out.size, x.nbytes + out.nbytes + weight.nbytes, weight.nbytes)

    def cases(self) -> Sequence[OpCase]:
        """One head and several, a head dim off the vector size."""
        return [
            OpCase(f"{t}x{h}x{d}", (rows(t, h, d), TensorType((d,), F32)), {"eps": 1e-6})
            for t, h, d in ((1, 1, 1), (3, 2, 12), (2, 4, 128))
        ]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, through float64."""
    wide = x.astype(np.float64)
    scale = 1.0 / np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return f32(wide * scale * weight)
