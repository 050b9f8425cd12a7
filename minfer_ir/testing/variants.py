"""Every way one op is tried: its declared cases, widened by element types, layouts and row counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import I32, DType
from minfer_ir.formats import ACTIVATION_FORMATS, FORMATS
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.opspec import ACTIVATION_TYPES, Array, Op, Operand, attrs_from_json
from minfer_ir.types import RowAxis, TensorType

Layout = Literal["plain", "strided", "ragged", "inplace"]

PADDING = (3, 5)
"""Elements before and after a strided operand's row: off every vector alignment."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One cell of the op matrix: operand types and attrs, how the operands lie, and the integers to use.

    Layouts: "plain" contiguous; "strided" float operands are column windows of wider rows; "ragged" there is one
    row less than the bucket; "inplace" the result takes over the buffer of operand `target`.
    """

    op: Op
    label: str
    operands: tuple[TensorType, ...]
    attrs: Any
    ints: Mapping[str, Sequence[int]]
    layout: Layout = "plain"
    target: str | None = None

    @property
    def slots(self) -> Iterator[tuple[Operand, TensorType]]:
        """Slots that are filled, with their types."""
        return zip(self.op.operands, self.operands, strict=False)

    @property
    def out(self) -> TensorType:
        """The type of the result; raises OpError when the declaration doesn't allow the operands."""
        return self.op.check(self.attrs, self.operands)

    @property
    def row_axis(self) -> RowAxis | None:
        """The rows that the op goes over: those of its result, or of what it stores."""
        return self.out.rows or next((kind.rows for kind in self.operands if kind.rows is not None), None)

    def __str__(self) -> str:
        layout = "" if self.layout == "plain" else f" {self.layout}" + (f" {self.target}" if self.target else "")
        return f"{self.op.name} {self.label}{layout}"


def variants(op: Op) -> Iterator[Variant]:
    """All variants of all declared cases of `op`."""
    for variant in typed_variants(op):
        yield variant
        yield from layouts(variant)


def typed_variants(op: Op) -> Iterator[Variant]:
    """The declared cases, each with every element type that its operand slots accept besides the one it names."""
    for case in op.cases():
        choices = [_element_types(slot, kind) for slot, kind in zip(op.operands, case.operands, strict=False)]
        attrs = attrs_from_json(op, case.attrs)
        for kinds in itertools.product(*choices):
            changed = [
                f"{slot.name}:{kind.dtype.name}"
                for slot, kind, given in zip(op.operands, kinds, case.operands, strict=False)
                if kind != given
            ]
            yield Variant(op, " ".join([case.label, *changed]), kinds, attrs, case.ints or {})


def drawn_variant(graph: Graph, node: Node, inputs: Mapping[str, Array]) -> Variant:
    """A node of some graph as a variant of its op, with the integers that `inputs` hold for it."""
    sources = [source for _, source in node.operands(graph)]
    ints = {
        slot: inputs[source.attrs.key].reshape(-1).tolist()
        for slot, source in node.operands(graph)
        if source.op == "input" and source.type.dtype is I32
    }
    types = tuple(s.type for s in sources)
    return Variant(node.spec, " ".join(map(str, types)), types, node.attrs, ints)


def _element_types(slot: Operand, kind: TensorType) -> list[TensorType]:
    """The named type first; a float row may also be a stored parameter, and an activation may be quantized."""
    others: list[str] = []
    if kind.dtype.name == "f32" and "activation" in slot.dtypes:
        others = [n for n in ACTIVATION_TYPES[1:] if kind.shape[-1] % FORMATS[n].block_size == 0]
    if kind.dtype.name == "f32" and kind.rows is None and "F32" in slot.dtypes:
        others = ["F32"]
    return [kind, *(replace(kind, dtype=FORMATS[name]) for name in others)]


def layouts(variant: Variant) -> Iterator[Variant]:
    """Where a forward has several rows: strided operands and a ragged end; and the in-place forms."""
    axis = variant.row_axis
    if axis is not None and max(kind.shape[0] for kind in variant.operands if kind.rows == axis) > 1:
        if not _indexes_rows(variant):
            yield replace(variant, layout="ragged")
        if any(is_strided(slot, kind) for slot, kind in variant.slots):
            yield replace(variant, layout="strided")
    for name in variant.op.inplace:
        if any(slot.name == name and kind == variant.out for slot, kind in variant.slots):
            yield replace(variant, layout="inplace", target=name)


def _indexes_rows(variant: Variant) -> bool:
    """True for a lookup in rows that a ragged end would cut as well: its indices may name the missing one."""
    return variant.op.name == "get_rows" and variant.operands[0].rows == variant.out.rows


def is_strided(slot: Operand, kind: TensorType) -> bool:
    """True for operands that the strided layout makes windows: float rows of the forward."""
    return kind.dtype.name == "f32" and kind.rows is not None and len(kind.shape) > 1


def variant_graph(variant: Variant) -> tuple[Graph, tuple[int, ...]]:
    """A graph of the one op over leaves, views and quantized inputs; its operands' ids. The op is the last node."""
    builder = GraphBuilder()
    sources = [_source(builder, variant, slot, kind) for slot, kind in variant.slots]
    node = builder.apply(variant.op, sources, _as_given(variant.attrs), variant.op.name)
    builder.output(node)
    return builder.build(), tuple(s.id for s in sources)


def _as_given(attrs: Any) -> dict[str, Any]:
    from minfer_ir.opspec import attrs_to_json

    return attrs_to_json(attrs)


def _source(builder: GraphBuilder, variant: Variant, slot: Operand, kind: TensorType) -> Node:
    dtype = kind.dtype
    if slot.dtypes == KV_TYPES:
        cells, width = kind.shape
        return builder.kv(key=slot.name, cells=cells, width=width, dtype=dtype.name)
    if dtype.name in ACTIVATION_FORMATS:
        floats = _input(builder, f"{slot.name}_f32", kind.shape, "f32", kind.rows)
        return builder.quantize_act(floats, dtype=dtype.name, name=slot.name)
    if not isinstance(dtype, DType):
        return builder.weight(key=slot.name, shape=kind.shape, dtype=dtype)
    if variant.layout == "strided" and is_strided(slot, kind):
        return _window(builder, slot.name, kind)
    return _input(builder, slot.name, kind.shape, dtype.name, kind.rows)


def _window(builder: GraphBuilder, name: str, kind: TensorType) -> Node:
    """A column window of a wider input, in the operand's shape."""
    rows, *inner = kind.shape
    width = kind.size // rows
    wide = _input(builder, f"{name}_wide", (rows, sum(PADDING) + width), "f32", kind.rows)
    window = builder.view(wide, starts=(0, PADDING[0]), shape=(rows, width), name=name)
    return window if len(inner) == 1 else builder.reshape(window, shape=kind.shape, name=f"{name}_shaped")


def _input(builder: GraphBuilder, name: str, shape: tuple[int, ...], dtype: str, rows: RowAxis | None) -> Node:
    return builder.input(key=name, shape=shape, dtype=dtype, rows=rows)
