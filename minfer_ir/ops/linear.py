"""Matrix products over weight formats, row lookup, and activation quantization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minfer_ir.dtypes import F32, I32
from minfer_ir.formats.base import Format
from minfer_ir.ops.elementwise import rows
from minfer_ir.opspec import ACTIVATION_TYPES, WEIGHT_TYPES, Array, Cost, NoAttrs, Op, OpCase, Operand, OpError, f32
from minfer_ir.types import TensorType, element_type


class MatMul(Op):
    """x @ weight.T: every output feature is the dot product of a row of x and a row of the weight."""

    name = "matmul"
    operands = (Operand("x", "T K", ("activation",)), Operand("weight", "N K", ("weight",)))

    def infer(self, attrs: NoAttrs, x: TensorType, weight: TensorType) -> TensorType:
        """`[T, N]` float32."""
        return TensorType((x.shape[0], weight.shape[0]), F32, x.rows)

    def reference(self, attrs: NoAttrs, x: Array, weight: Array) -> Array:
        """Accumulated in float64 for few rows; large products stay in float32, where BLAS is an oracle enough."""
        if x.shape[0] * weight.size <= FLOAT64_PRODUCTS:
            return f32(x.astype(np.float64) @ weight.astype(np.float64).T)
        return x @ weight.T

    def cost(self, attrs: NoAttrs, out: TensorType, x: TensorType, weight: TensorType) -> Cost:
        """Two flops per multiply-add."""
        return Cost(2 * out.size * x.shape[1], out.nbytes + x.nbytes + weight.nbytes, weight.nbytes)

    def cases(self) -> Sequence[OpCase]:
        """Every weight format at one row and several, with row counts off the group of eight."""
        return [
            OpCase(f"{name}_{t}x{n}x{k}", (rows(t, k), TensorType((n, k), element_type(name))), {})
            for name in WEIGHT_TYPES
            for t, n, k in ((1, 1, 256), (3, 17, 512), (5, 8, 256))
        ]


class GetRows(Op):
    """Rows of a table by index: an embedding lookup, or the rows whose output was asked for."""

    name = "get_rows"
    operands = (Operand("table", "V K", ("weight", "f32")), Operand("ids", "T", ("i32",)))

    def infer(self, attrs: NoAttrs, table: TensorType, ids: TensorType) -> TensorType:
        """`[T, K]` float32, with the row meaning of `ids`."""
        return TensorType((ids.shape[0], table.shape[1]), F32, ids.rows)

    def reference(self, attrs: NoAttrs, table: Array, ids: Array) -> Array:
        """`table[ids]`."""
        return f32(table[ids])

    def cost(self, attrs: NoAttrs, out: TensorType, table: TensorType, ids: TensorType) -> Cost:
        """Only the rows asked for are read."""
        read = out.shape[0] * table.dtype.row_bytes(table.shape[1])
        return Cost(0, out.nbytes + read, read if table.rows is None else 0)

    def cases(self) -> Sequence[OpCase]:
        """Every weight format, and a gather of activations."""
        ids = (0, 4, 4)
        table = [
            OpCase(f"{n}", (TensorType((5, 512), element_type(n)), TensorType((3,), I32, "token")), {}, {"ids": ids})
            for n in WEIGHT_TYPES
        ]
        gather = OpCase("f32", (rows(5, 17), TensorType((3,), I32, "output")), {}, {"ids": ids})
        return [*table, gather]


class QuantizeAct(Op):
    """Activations to 8-bit blocks with float scales, the form integer dot products read."""

    name = "quantize_act"
    operands = (Operand("x", "T K"),)

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """`dtype` is Q8A32 (blocks of 32) or Q8A256 (blocks of 256 with sub-block sums)."""

        dtype: Format

    def infer(self, attrs: Attrs, x: TensorType) -> TensorType:
        """The same shape, quantized."""
        return quantized(self.name, attrs.dtype, x)

    def reference(self, attrs: Attrs, x: Array) -> Array:
        """The identity: storing the result in its format is what rounds it."""
        return x

    def cases(self) -> Sequence[OpCase]:
        """Both block sizes, one row and several."""
        return [
            OpCase(f"{n}_{t}x{k}", (rows(t, k),), {"dtype": n})
            for n in ("Q8A32", "Q8A256")
            for t, k in ((1, 256), (3, 512))
        ]


def quantized(op: str, dtype: Format, x: TensorType) -> TensorType:
    """The type of `x` in `dtype`; raises OpError when that isn't an activation format, or rows aren't whole blocks."""
    if dtype.name not in ACTIVATION_TYPES:
        raise OpError(f"{op}: activations are never stored as {dtype.name}; formats: {', '.join(ACTIVATION_TYPES[1:])}")
    if x.shape[1] % dtype.block_size:
        raise OpError(f"{op}: {x.shape[1]} features aren't whole {dtype.name} blocks of {dtype.block_size}")
    return TensorType(x.shape, dtype, x.rows)


FLOAT64_PRODUCTS = 1 << 27
