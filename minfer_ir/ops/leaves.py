"""Leaves: what a graph reads without computing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Format
from minfer_ir.opspec import Array, Op, OpError
from minfer_ir.types import ElementType, RowAxis, Shape, TensorType


class Leaf(Op):
    """A value that arrives from outside; evaluation looks it up instead of computing it."""

    effect = "leaf"

    def reference(self, *args: Any, **kwargs: Any) -> Array:
        """A leaf has no computation."""
        raise OpError(f"{self.name} is a leaf: its value is bound, not computed")


class Input(Leaf):
    """A tensor filled before every step: token ids, positions, cells, windows."""

    name = "input"

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """`key` is the name it is filled under; `limit` names the bound that the fill guard holds values below."""

        key: str
        shape: Shape
        dtype: DType
        rows: RowAxis | None = None
        limit: int | None = None

    def infer(self, attrs: Attrs) -> TensorType:
        """The declared type."""
        positive(f"input {attrs.key}", attrs.shape)
        return TensorType(attrs.shape, attrs.dtype, attrs.rows)


class Weight(Leaf):
    """A model tensor by registry name, in its storage format."""

    name = "weight"

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """`version` counts replacements of the registry (an adapter applied, a hot swap)."""

        key: str
        shape: Shape
        dtype: Format
        version: int = 0

    def infer(self, attrs: Attrs) -> TensorType:
        """The declared type, when the rows are whole blocks."""
        positive(f"weight {attrs.key}", attrs.shape)
        if not attrs.shape or attrs.shape[-1] % attrs.dtype.block_size:
            raise OpError(f"weight {attrs.key} {attrs.shape}: rows aren't whole {attrs.dtype.name} blocks")
        return TensorType(attrs.shape, attrs.dtype)


class WeightConcat(Leaf):
    """Several weights of one format and width, stacked along their rows into one."""

    name = "weight_concat"

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """`keys` in stacking order, with the row count of each."""

        keys: tuple[str, ...]
        sizes: tuple[int, ...]
        width: int
        dtype: Format
        version: int = 0

    def infer(self, attrs: Attrs) -> TensorType:
        """`[sum(sizes), width]`."""
        if len(attrs.keys) != len(attrs.sizes) or len(attrs.keys) < 2:
            raise OpError(f"weight_concat needs two or more keys with a size each, got {attrs.keys} and {attrs.sizes}")
        positive(f"weight_concat {'+'.join(attrs.keys)}", (*attrs.sizes, attrs.width))
        if attrs.width % attrs.dtype.block_size:
            raise OpError(f"weight_concat {attrs.keys}: {attrs.width} wide rows aren't whole {attrs.dtype.name} blocks")
        return TensorType((sum(attrs.sizes), attrs.width), attrs.dtype)


class Kv(Leaf):
    """A persistent region of KV cells: one row of keys or values per cell, kept between steps."""

    name = "kv"

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """`key` names the region, e.g. "k.0"; `width` is n_kv_heads * head_dim elements."""

        key: str
        cells: int
        width: int
        dtype: DType | Format

    def infer(self, attrs: Attrs) -> TensorType:
        """`[cells, width]`, when a row is whole blocks of a packed cell type."""
        kv_type(attrs.dtype)
        positive(f"kv {attrs.key}", (attrs.cells, attrs.width))
        if isinstance(attrs.dtype, Format) and attrs.width % attrs.dtype.block_size:
            raise OpError(f"kv {attrs.key}: {attrs.width} wide rows aren't whole {attrs.dtype.name} blocks")
        return TensorType((attrs.cells, attrs.width), attrs.dtype)


def positive(what: str, dims: Shape) -> None:
    """Raise OpError unless every dim is at least 1."""
    if any(d < 1 for d in dims):
        raise OpError(f"{what}: dims must be at least 1, got {dims}")


def kv_type(dtype: ElementType) -> None:
    """Raise OpError when KV rows can't be stored as `dtype`."""
    if dtype.name not in KV_TYPES:
        raise OpError(f"KV cells are stored as {', '.join(KV_TYPES[:-1])} or {KV_TYPES[-1]}, not {dtype.name}")


KV_TYPES = ("f32", "f16", "q8_0")
