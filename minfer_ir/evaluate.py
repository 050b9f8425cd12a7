"""Numpy evaluation of any graph: the oracle that kernels and passes are held to.

Values live in storage form (bytes for block formats) exactly as a backend would keep them, so a graph with
quantized activations rounds where the graph says so, and one without them doesn't round at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Array
from minfer_ir.types import TensorType

N_ROWS = "n_rows"
"""The input that holds the actual numbers of rows: `[token rows, output rows]`."""


class WeightSource(Protocol):
    """Where weight bytes come from, by registry name."""

    def rows(self, key: str) -> Bytes:
        """The tensor's rows `[n_rows, row_bytes]` uint8; a vector is one row. Raises KeyError for an unknown name."""
        ...


class Weights(dict[str, Bytes]):
    """A WeightSource over a plain dict of rows."""

    def rows(self, key: str) -> Bytes:
        """The rows stored under `key`."""
        return self[key]


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    weights: WeightSource,
    regions: dict[str, Array] | None = None,
    observe: Callable[[Node, Array], None] | None = None,
) -> list[Array]:
    """Run `graph` node by node; returns the outputs.

    `inputs` by key, each as long as the actual rows; `regions` holds the KV regions by key, changed in place
    and created (zeros) when missing. `observe` sees every computed node's value, decoded to numbers.
    """
    interpreter = Interpreter(graph, weights, {} if regions is None else regions)
    return interpreter.run(inputs, observe)


class Interpreter:
    """Evaluates one graph repeatedly; decoded weights are kept between runs."""

    def __init__(self, graph: Graph, weights: WeightSource, regions: dict[str, Array]) -> None:
        self.graph = graph
        self.weights = weights
        self.regions = regions
        self._decoded: dict[int, Array] = {}

    def run(self, inputs: Mapping[str, Array], observe: Callable[[Node, Array], None] | None = None) -> list[Array]:
        """One forward; see `evaluate`."""
        values: dict[int, Array] = {}
        last_use = {s: n.id for n in self.graph for s in n.sources}
        for node in self.graph:
            values[node.id] = self._leaf(node, inputs) if node.is_leaf() else compute(node, self.graph, values)
            if observe is not None and not node.is_leaf():
                observe(node, decoded(node.type, values[node.id]))
            for source in set(node.sources):
                if last_use[source] == node.id and source not in self.graph.outputs:
                    values.pop(source, None)
        return [decoded(self.graph[o].type, values[o]) for o in self.graph.outputs]

    def _leaf(self, node: Node, inputs: Mapping[str, Array]) -> Array:
        attrs = node.attrs
        if node.op == "input":
            return self._input(node, inputs)
        if node.op == "kv":
            return self.regions.setdefault(attrs.key, empty_region(node.type))
        if node.id not in self._decoded:
            self._decoded[node.id] = weight_value(node, self.weights)
        return self._decoded[node.id]

    def _input(self, node: Node, inputs: Mapping[str, Array]) -> Array:
        attrs, kind = node.attrs, node.type
        if attrs.key not in inputs:
            if not self.graph.users[node.id]:
                return np.zeros(0, attrs.dtype.storage)
            raise ValueError(f"input {attrs.key!r} wasn't given; given: {', '.join(inputs) or 'none'}")
        value = np.asarray(inputs[attrs.key], attrs.dtype.storage)
        rows = min(len(value), kind.shape[0]) if kind.rows and value.ndim else None
        if value.shape != (kind.shape if rows is None else (rows, *kind.shape[1:])):
            raise ValueError(f"input {attrs.key!r} has shape {value.shape}, the graph takes {kind}")
        return value


def weight_value(node: Node, weights: WeightSource) -> Array:
    """A weight leaf decoded to float32 in its declared shape."""
    attrs = node.attrs
    keys = attrs.keys if node.op == "weight_concat" else (attrs.key,)
    parts = [attrs.dtype.decode(weights.rows(k)).reshape(-1, node.type.shape[-1]) for k in keys]
    return np.concatenate(parts).reshape(node.type.shape)


def compute(node: Node, graph: Graph, values: Mapping[int, Array]) -> Array:
    """The node's value in storage form, from its sources' values in storage form (weights: already decoded)."""
    operands = reference_operands(node, graph, values)
    if node.spec.effect == "view":
        return node.spec.reference(node.attrs, values[node.sources[0]]) if _scalar(node) else _rows_view(node, values)
    return encoded(node.type, node.spec.reference(node.attrs, *operands))


def reference_operands(node: Node, graph: Graph, values: Mapping[int, Array]) -> list[Array]:
    """The operands as the op's reference takes them, from the sources' values in storage form."""
    named = zip(node.spec.operands, node.sources, strict=False)
    return [values[s] if slot.name in node.spec.stored else source_value(graph[s], values[s]) for slot, s in named]


def empty_region(kind: TensorType) -> Array:
    """A KV region whose cells are all zeros, in storage form."""
    if isinstance(kind.dtype, DType):
        return np.zeros(kind.shape, kind.dtype.storage)
    return np.zeros((kind.shape[0], kind.dtype.row_bytes(kind.shape[1])), np.uint8)


def source_value(source: Node, value: Array) -> Array:
    """What a reference sees of `source`: numbers. Weight leaves arrive decoded already."""
    return value if source.op in ("weight", "weight_concat") else decoded(source.type, value)


def decoded(kind: TensorType, value: Array) -> Array:
    """Storage to numbers: block formats to float32, scalars as they are."""
    return kind.dtype.decode(value) if isinstance(kind.dtype, Format) and value.dtype == np.uint8 else value


def encoded(kind: TensorType, value: Array) -> Array:
    """Numbers to storage; a region that was stored into is in storage form already."""
    return kind.dtype.encode(value) if isinstance(kind.dtype, Format) and value.dtype != np.uint8 else value


def _scalar(node: Node) -> bool:
    return isinstance(node.type.dtype, DType)


def _rows_view(node: Node, values: Mapping[int, Array]) -> Any:
    """Views of block formats keep whole rows: the op moves row numbers, the bytes follow."""
    source = values[node.sources[0]]
    numbers = np.arange(math.prod(source.shape[:-1])).reshape(*source.shape[:-1], 1)
    width = node.type.shape[-1]
    moved = node.spec.reference(node.attrs, np.broadcast_to(numbers, (*source.shape[:-1], width)))
    return source.reshape(-1, source.shape[-1])[moved[..., 0]]
