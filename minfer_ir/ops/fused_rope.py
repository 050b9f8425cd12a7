"""Rope with what stands around it: the norm of the heads before it, the store into KV cells behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from minfer_ir.dtypes import F16, F32, I32
from minfer_ir.formats import Q8_0_CELL
from minfer_ir.ops.composed import ComposedOp
from minfer_ir.ops.elementwise import ROW_OR_PARAM, rows
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.ops.rope import Rope, RopeAttrs
from minfer_ir.opspec import OpCase, Operand
from minfer_ir.types import Shape, TensorType

HEADS = Operand("x", "T N D")
NORM_WEIGHT = Operand("norm_weight", "D", ROW_OR_PARAM)
POSITIONS = Operand("positions", "T", ("i32",))
FACTORS = Rope.operands[2]
REGION = Operand("region", "C W", KV_TYPES)
CELLS = Operand("cells", "T", ("i32",))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAttrs(RopeAttrs):
    """`row` is the shape of the values that are stored: `(T, N * D)`."""

    row: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NormRopeAttrs(RopeAttrs):
    """`eps` as in qk_norm."""

    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NormStoreAttrs(RopeAttrs):
    """`eps` as in qk_norm, `row` the shape of the values that are stored."""

    eps: float
    row: Shape


def rope_of(attrs: Any) -> dict[str, Any]:
    """What of `attrs` belongs to rope."""
    return {f.name: getattr(attrs, f.name) for f in fields(RopeAttrs)}


def plain_rope(attrs: RopeAttrs) -> RopeAttrs:
    """`attrs` as rope alone has them: what names a table of angles."""
    return RopeAttrs(**rope_of(attrs))


class RopeKvStore(ComposedOp):
    """Rotate heads and write them into their tokens' cells."""

    name = "rope_kv_store"
    switch = "rope_kv_store"
    operands = (REGION, HEADS, POSITIONS, CELLS, FACTORS)
    Attrs = StoreAttrs
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def decompose(
        self, b: Any, attrs: StoreAttrs, region: Any, x: Any, positions: Any, cells: Any, factors: Any = None
    ) -> Any:
        """kv_store(region, reshape(rope(x, positions, factors)), cells)."""
        rotated = b.rope(x, positions, factors, **rope_of(attrs))
        return b.kv_store(region, b.reshape(rotated, shape=attrs.row), cells)

    def cases(self) -> Sequence[OpCase]:
        """Both pairings, every cell type, scattered cells, frequency factors."""
        return [
            *(store_case(pairs, dtype, (2, 12), 8) for pairs in ("neox", "interleaved") for dtype in (F32, F16)),
            store_case("neox", Q8_0_CELL, (2, 16), 8),
            store_case("neox", F16, (2, 12), 8, factors=True),
        ]


class QkNormRope(ComposedOp):
    """Norm every head, then rotate it (Qwen3)."""

    name = "qk_norm_rope"
    switch = "qk_norm_rope"
    operands = (HEADS, NORM_WEIGHT, POSITIONS, FACTORS)
    Attrs = NormRopeAttrs

    def decompose(
        self, b: Any, attrs: NormRopeAttrs, x: Any, norm_weight: Any, positions: Any, factors: Any = None
    ) -> Any:
        """rope(qk_norm(x, norm_weight), positions, factors)."""
        return b.rope(b.qk_norm(x, norm_weight, eps=attrs.eps), positions, factors, **rope_of(attrs))

    def cases(self) -> Sequence[OpCase]:
        """Both pairings, heads rotated in whole and in part, frequency factors."""
        return [
            OpCase(
                f"{pairs}_{d}" + ("_factors" if factors else ""),
                (rows(3, 2, d), TensorType((d,), F32), TensorType((3,), I32, "token"), *factors),
                {**rope_attrs(pairs, 8), "eps": 1e-6},
                {"positions": (0, 1, 30)},
            )
            for pairs, d, factors in (
                *(("neox", 8, ()), ("neox", 20, ()), ("interleaved", 12, ())),
                ("neox", 12, (factors_type(8),)),
            )
        ]


class QkNormRopeKvStore(ComposedOp):
    """Norm every head, rotate it and write it into its token's cell."""

    name = "qk_norm_rope_kv_store"
    switch = "qk_norm_rope_kv_store"
    operands = (REGION, HEADS, NORM_WEIGHT, POSITIONS, CELLS, FACTORS)
    Attrs = NormStoreAttrs
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def decompose(
        self,
        b: Any,
        attrs: NormStoreAttrs,
        region: Any,
        x: Any,
        norm_weight: Any,
        positions: Any,
        cells: Any,
        factors: Any = None,
    ) -> Any:
        """kv_store(region, reshape(qk_norm_rope(x, norm_weight, positions, factors)), cells)."""
        rotated = b.qk_norm_rope(x, norm_weight, positions, factors, eps=attrs.eps, **rope_of(attrs))
        return b.kv_store(region, b.reshape(rotated, shape=attrs.row), cells)

    def cases(self) -> Sequence[OpCase]:
        """Both pairings, every cell type, frequency factors."""
        return [
            *(
                store_case(pairs, dtype, (2, 12), 8, norm=True)
                for pairs, dtype in (("neox", F32), ("neox", F16), ("interleaved", F16))
            ),
            store_case("neox", Q8_0_CELL, (2, 16), 8, norm=True),
            store_case("neox", F16, (2, 12), 8, norm=True, factors=True),
        ]


def rope_attrs(pairs: str, dims: int) -> dict[str, Any]:
    """Rope attrs of test cases."""
    return {"pairs": pairs, "dims": dims, "base": 10000.0, "max_positions": 32}


def factors_type(dims: int) -> TensorType:
    """Frequency factors of `dims` rotating elements."""
    return TensorType((dims // 2,), F32)


def store_case(
    pairs: str, dtype: Any, heads: tuple[int, int], dims: int, norm: bool = False, factors: bool = False
) -> OpCase:
    """Three rows of `heads` (number, width) into nine cells."""
    n, d = heads
    region, index = TensorType((9, n * d), dtype), TensorType((3,), I32, "token")
    attrs: Mapping[str, Any] = {**rope_attrs(pairs, dims), "row": (3, n * d), **({"eps": 1e-6} if norm else {})}
    weight = (TensorType((d,), F32),) if norm else ()
    operands = (region, rows(3, n, d), *weight, index, index, *((factors_type(dims),) if factors else ()))
    label = f"{pairs}_{dtype.name}" + ("_factors" if factors else "")
    return OpCase(label, operands, attrs, {"positions": (0, 1, 30), "cells": (8, 0, 3)})
