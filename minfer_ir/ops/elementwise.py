"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minfer_ir.dtypes import F32
from minfer_ir.opspec import Array, NoAttrs, Op, OpCase, Operand, OpError, f32
from minfer_ir.types import TensorType

ROW_OR_PARAM = ("f32", "F32")


class Binary(Op):
    """Shared by add and mul: operands of one shape, or a vector applied to every row."""

    operands = (Operand("x", "*"), Operand("y", "*", ROW_OR_PARAM))
    inplace = ("x",)
    commutative = True

    def infer(self, attrs: NoAttrs, x: TensorType, y: TensorType) -> TensorType:
        """The type of `x`; `y` is the same shape or one row `[x.shape[-1]]`."""
        if y.shape not in (x.shape, x.shape[-1:]):
            raise OpError(f"{self.name}: y has shape {y.shape}, x has {x.shape}: they must be equal or y one row")
        if y.rows != (x.rows if y.shape == x.shape else None):
            raise OpError(f"{self.name}: axis 0 of x {x} and of y {y} count different rows")
        return x

    def cases(self) -> Sequence[OpCase]:
        """Equal shapes, a broadcast row, widths off the vector size; a row for every head."""
        plain = [
            OpCase(f"{t}x{n}" + ("_row" if row else ""), (rows(t, n), TensorType((n,), F32) if row else rows(t, n)), {})
            for t, n in ((1, 1), (3, 17), (2, 64))
            for row in (False, True)
        ]
        heads = TensorType((2, 3, 5), F32, "token")
        return [*plain, OpCase("2x3x5_row", (heads, TensorType((5,), F32)), {})]


class Add(Binary):
    """Sum of two tensors, or of a tensor and a row (a bias)."""

    name = "add"

    def reference(self, attrs: NoAttrs, x: Array, y: Array) -> Array:
        """`x + y`."""
        return x + y


class Mul(Binary):
    """Product of two tensors, or of a tensor and a row."""

    name = "mul"

    def reference(self, attrs: NoAttrs, x: Array, y: Array) -> Array:
        """`x * y`."""
        return x * y


class Scale(Op):
    """A tensor times a constant."""

    name = "scale"
    operands = (Operand("x", "*"),)
    inplace = ("x",)

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """`factor` is rounded to float32."""

        factor: float

    def infer(self, attrs: Attrs, x: TensorType) -> TensorType:
        """The type of `x`."""
        return x

    def reference(self, attrs: Attrs, x: Array) -> Array:
        """`x * factor`."""
        return x * np.float32(attrs.factor)

    def cases(self) -> Sequence[OpCase]:
        """One row and several, a factor that float32 has to round."""
        return [OpCase(f"{t}x{n}", (rows(t, n),), {"factor": 0.1}) for t, n in ((1, 1), (3, 17), (2, 64))]


class Silu(Op):
    """x * sigmoid(x) (Elfwing et al. 2017)."""

    name = "silu"
    operands = (Operand("x", "*"),)
    inplace = ("x",)

    def infer(self, attrs: NoAttrs, x: TensorType) -> TensorType:
        """The type of `x`."""
        return x

    def reference(self, attrs: NoAttrs, x: Array) -> Array:
        """Evaluated in float64, rounded once."""
        return silu(x)

    def cases(self) -> Sequence[OpCase]:
        """Widths around the vector size."""
        return [OpCase(f"{t}x{n}", (rows(t, n),), {}) for t, n in ((1, 1), (3, 17), (2, 64))]


class Softmax(Op):
    """Softmax over the last axis."""

    name = "softmax"
    operands = (Operand("x", "*"),)

    def infer(self, attrs: NoAttrs, x: TensorType) -> TensorType:
        """The type of `x`."""
        return x

    def reference(self, attrs: NoAttrs, x: Array) -> Array:
        """Shifted by the row's maximum, evaluated in float64."""
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(axis=-1, keepdims=True))
        return f32(e / e.sum(axis=-1, keepdims=True))

    def cases(self) -> Sequence[OpCase]:
        """A single column, a prime, a long row."""
        return [OpCase(f"{t}x{n}", (rows(t, n),), {}) for t, n in ((1, 1), (3, 17), (2, 300))]


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)) through float64."""
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        return f32(wide / (1.0 + np.exp(-wide)))


def rows(t: int, *inner: int) -> TensorType:
    """A float32 value of `t` token rows."""
    return TensorType((t, *inner), F32, "token")
