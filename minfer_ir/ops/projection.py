"""Projections to heads and cells: a product with what follows it up to where its rows are read again.

The products of queries, keys and values need no values in common but their activations, so they run side by side, in
formats of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minfer_ir.dtypes import F16, F32, I32
from minfer_ir.formats import Q8_0_CELL
from minfer_ir.ops.composed import ComposedOp
from minfer_ir.ops.elementwise import ROW_OR_PARAM, rows
from minfer_ir.ops.fused_matmul import ACTIVATIONS, SOME_FORMATS
from minfer_ir.ops.fused_rope import CELLS, FACTORS, NORM_WEIGHT, POSITIONS, REGION, factors_type, rope_attrs, rope_of
from minfer_ir.ops.rope import RopeAttrs
from minfer_ir.opspec import NoAttrs, OpCase, Operand
from minfer_ir.types import Shape, TensorType, element_type

WEIGHT = Operand("weight", "N K", ("weight",))
BIAS = Operand("bias", "N", ROW_OR_PARAM)
STORED = (REGION, CELLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsAttrs(RopeAttrs):
    """`heads` is the product's shape as heads, `(T, heads, head_dim)`."""

    heads: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NormHeadsAttrs(HeadsAttrs):
    """`eps` as in qk_norm."""

    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsStoreAttrs(HeadsAttrs):
    """`row` is the shape of the values that are stored."""

    row: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NormHeadsStoreAttrs(HeadsStoreAttrs):
    """`eps` as in qk_norm."""

    eps: float


class MatMulKvStore(ComposedOp):
    """A product written into its tokens' cells."""

    name = "matmul_kv_store"
    switch = "matmul_kv_store"
    operands = (ACTIVATIONS, WEIGHT, *STORED)
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def decompose(self, b: Any, attrs: NoAttrs, x: Any, weight: Any, region: Any, cells: Any) -> Any:
        """kv_store(region, matmul(x, weight), cells)."""
        return b.kv_store(region, b.matmul(x, weight), cells)

    def cases(self) -> Sequence[OpCase]:
        """Some weight formats into every cell type."""
        scalars = [_case(self, f"{fmt}_{d.name}", fmt, (5, 8), d) for fmt in SOME_FORMATS for d in (F32, F16)]
        return [*scalars, _case(self, "Q4_1_q8_0", "Q4_1", (4, 8), Q8_0_CELL)]


class MatMulAddKvStore(ComposedOp):
    """A product and its bias written into its tokens' cells."""

    name = "matmul_add_kv_store"
    switch = "matmul_add_kv_store"
    operands = (ACTIVATIONS, WEIGHT, BIAS, *STORED)
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def decompose(self, b: Any, attrs: NoAttrs, x: Any, weight: Any, bias: Any, region: Any, cells: Any) -> Any:
        """kv_store(region, matmul_add(x, weight, bias), cells)."""
        return b.kv_store(region, b.matmul_add(x, weight, bias), cells)

    def cases(self) -> Sequence[OpCase]:
        """One weight format into one cell type."""
        return [_case(self, "Q4_1_f16", "Q4_1", (5, 8), F16)]


class MatMulRope(ComposedOp):
    """A product rotated as heads."""

    name = "matmul_rope"
    switch = "matmul_rope"
    operands = (ACTIVATIONS, WEIGHT, POSITIONS, FACTORS)
    Attrs = HeadsAttrs

    def decompose(self, b: Any, attrs: HeadsAttrs, x: Any, weight: Any, positions: Any, factors: Any = None) -> Any:
        """rope(reshape(matmul(x, weight)), positions, factors)."""
        heads = b.reshape(b.matmul(x, weight), shape=attrs.heads)
        return b.rope(heads, positions, factors, **rope_of(attrs))

    def cases(self) -> Sequence[OpCase]:
        """Some weight formats, both pairings, frequency factors."""
        plain = [
            _case(self, f"{fmt}_{pairs}", fmt, (4, 32), pairs=pairs)
            for fmt in SOME_FORMATS
            for pairs in ("neox", "interleaved")
        ]
        return [*plain, _case(self, "Q4_1_factors", "Q4_1", (4, 32), factors=True)]


class MatMulAddRope(ComposedOp):
    """A product and its bias rotated as heads."""

    name = "matmul_add_rope"
    switch = "matmul_add_rope"
    operands = (ACTIVATIONS, WEIGHT, BIAS, POSITIONS, FACTORS)
    Attrs = HeadsAttrs

    def decompose(
        self, b: Any, attrs: HeadsAttrs, x: Any, weight: Any, bias: Any, positions: Any, factors: Any = None
    ) -> Any:
        """rope(reshape(matmul_add(x, weight, bias)), positions, factors)."""
        heads = b.reshape(b.matmul_add(x, weight, bias), shape=attrs.heads)
        return b.rope(heads, positions, factors, **rope_of(attrs))

    def cases(self) -> Sequence[OpCase]:
        """One weight format, both pairings, frequency factors."""
        return _heads_cases(self)


class MatMulNormRope(ComposedOp):
    """A product normed head by head and rotated."""

    name = "matmul_norm_rope"
    switch = "matmul_norm_rope"
    operands = (ACTIVATIONS, WEIGHT, NORM_WEIGHT, POSITIONS, FACTORS)
    Attrs = NormHeadsAttrs

    def decompose(
        self, b: Any, attrs: NormHeadsAttrs, x: Any, weight: Any, norm_weight: Any, positions: Any, factors: Any = None
    ) -> Any:
        """qk_norm_rope(reshape(matmul(x, weight)), norm_weight, positions, factors)."""
        heads = b.reshape(b.matmul(x, weight), shape=attrs.heads)
        return b.qk_norm_rope(heads, norm_weight, positions, factors, eps=attrs.eps, **rope_of(attrs))

    def cases(self) -> Sequence[OpCase]:
        """One weight format, both pairings, frequency factors."""
        return _heads_cases(self)


class MatMulRopeKvStore(ComposedOp):
    """A product rotated as heads and written into its tokens' cells."""

    name = "matmul_rope_kv_store"
    switch = "matmul_rope_kv_store"
    operands = (ACTIVATIONS, WEIGHT, POSITIONS, *STORED, FACTORS)
    Attrs = HeadsStoreAttrs
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def decompose(
        self,
        b: Any,
        attrs: HeadsStoreAttrs,
        x: Any,
        weight: Any,
        positions: Any,
        region: Any,
        cells: Any,
        factors: Any = None,
    ) -> Any:
        """rope_kv_store(region, reshape(matmul(x, weight)), positions, cells, factors)."""
        heads = b.reshape(b.matmul(x, weight), shape=attrs.heads)
        return b.rope_kv_store(region, heads, positions, cells, factors, row=attrs.row, **rope_of(attrs))

    def cases(self) -> Sequence[OpCase]:
        """Some weight formats, both pairings, every cell type, frequency factors."""
        scalars = [
            _case(self, f"{fmt}_{pairs}_{d.name}", fmt, (4, 32), d, pairs=pairs)
            for fmt in SOME_FORMATS
            for pairs, d in (("neox", F16), ("interleaved", F32))
        ]
        packed = _case(self, "Q4_1_q8_0", "Q4_1", (4, 32), Q8_0_CELL)
        return [*scalars, packed, _case(self, "Q4_1_factors", "Q4_1", (4, 32), F16, factors=True)]


class MatMulAddRopeKvStore(ComposedOp):
    """A product and its bias rotated as heads and written into its tokens' cells."""

    name = "matmul_add_rope_kv_store"
    switch = "matmul_add_rope_kv_store"
    operands = (ACTIVATIONS, WEIGHT, BIAS, POSITIONS, *STORED, FACTORS)
    Attrs = HeadsStoreAttrs
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def decompose(
        self,
        b: Any,
        attrs: HeadsStoreAttrs,
        x: Any,
        weight: Any,
        bias: Any,
        positions: Any,
        region: Any,
        cells: Any,
        factors: Any = None,
    ) -> Any:
        """rope_kv_store(region, reshape(matmul_add(x, weight, bias)), positions, cells, factors)."""
        heads = b.reshape(b.matmul_add(x, weight, bias), shape=attrs.heads)
        return b.rope_kv_store(region, heads, positions, cells, factors, row=attrs.row, **rope_of(attrs))

    def cases(self) -> Sequence[OpCase]:
        """One weight format, both pairings, frequency factors."""
        return _heads_cases(self, F16)


class MatMulNormRopeKvStore(ComposedOp):
    """A product normed head by head, rotated and written into its tokens' cells."""

    name = "matmul_norm_rope_kv_store"
    switch = "matmul_norm_rope_kv_store"
    operands = (ACTIVATIONS, WEIGHT, NORM_WEIGHT, POSITIONS, *STORED, FACTORS)
    Attrs = NormHeadsStoreAttrs
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def decompose(
        self,
        b: Any,
        attrs: NormHeadsStoreAttrs,
        x: Any,
        weight: Any,
        norm_weight: Any,
        positions: Any,
        region: Any,
        cells: Any,
        factors: Any = None,
    ) -> Any:
        """qk_norm_rope_kv_store(region, reshape(matmul(x, weight)), norm_weight, positions, cells, factors)."""
        heads = b.reshape(b.matmul(x, weight), shape=attrs.heads)
        return b.qk_norm_rope_kv_store(
            region, heads, norm_weight, positions, cells, factors, eps=attrs.eps, row=attrs.row, **rope_of(attrs)
        )

    def cases(self) -> Sequence[OpCase]:
        """One weight format, both pairings, frequency factors."""
        return _heads_cases(self, F16)


def _heads_cases(op: ComposedOp, cell: Any = F32) -> list[OpCase]:
    """One weight format, both pairings, frequency factors."""
    plain = [_case(op, f"Q4_1_{pairs}", "Q4_1", (4, 32), cell, pairs=pairs) for pairs in ("neox", "interleaved")]
    return [*plain, _case(op, "Q4_1_factors", "Q4_1", (4, 32), cell, factors=True)]


def _case(
    op: ComposedOp,
    label: str,
    fmt: str,
    heads: tuple[int, int],
    cell: Any = F32,
    pairs: str = "neox",
    factors: bool = False,
) -> OpCase:
    """Three rows of `heads` (number, width), as many as two threads share evenly; two thirds of a head rotate."""
    (n, d), k = heads, 256
    dims = d * 2 // 3 // 2 * 2
    index = TensorType((3,), I32, "token")
    kinds = {
        "x": rows(3, k),
        "weight": TensorType((n * d, k), element_type(fmt)),
        "bias": TensorType((n * d,), F32),
        "norm_weight": TensorType((d,), F32),
        "region": TensorType((9, n * d), cell),
        "positions": index,
        "cells": index,
        "factors": factors_type(dims),
    }
    values = {"heads": (3, n, d), "row": (3, n * d), "eps": 1e-6, **rope_attrs(pairs, dims)}
    attrs = {name: values[name] for name in op.Attrs.__dataclass_fields__ if name in values}
    operands = tuple(kinds[slot.name] for slot in op.operands if factors or not slot.optional)
    return OpCase(label, operands, attrs, {"positions": (0, 1, 30), "cells": (8, 0, 3)})
