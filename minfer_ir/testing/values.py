"""Values to test with: by type for one operand, by graph for a whole forward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minfer_ir.dtypes import F16, F32, I32
from minfer_ir.evaluate import Weights
from minfer_ir.formats import ACTIVATION_FORMATS, CELL_FORMATS
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.attention import MAP_RUNS, window_mode
from minfer_ir.opspec import Array
from minfer_ir.types import RowAxis, TensorType

WEIGHT_SCALE = 0.1
POSITIVE = "factors"
"""The operand whose values must be above 0: ops refuse others."""


def draw_value(rng: np.random.Generator, kind: TensorType, ints: Sequence[int] | None = None) -> Array:
    """A value of `kind` in storage form: normal floats, drawn blocks, or the given integers.

    Raises ValueError for an integer type without `ints`: a test has to say which indices make sense.
    """
    if isinstance(kind.dtype, Format):
        return draw_rows(rng, kind.dtype, kind.shape)
    if ints is not None:
        return np.asarray(ints, kind.dtype.storage).reshape(kind.shape)
    if kind.dtype not in (F32, F16):
        raise ValueError(f"a value of {kind} needs its integers given")
    return rng.standard_normal(kind.shape, np.float32).astype(kind.dtype.storage)


def draw_rows(rng: np.random.Generator, dtype: Format, shape: tuple[int, ...]) -> Bytes:
    """Random blocks `[..., row_bytes]`; activations and KV cells get unit deviation, weights a smaller one."""
    n_rows = math.prod(shape[:-1])
    scale = 1.0 if dtype.name in (*ACTIVATION_FORMATS, *CELL_FORMATS) else WEIGHT_SCALE
    return dtype.draw(rng, n_rows, shape[-1], scale).reshape(*shape[:-1], dtype.row_bytes(shape[-1]))


def draw_operand(
    rng: np.random.Generator, op: str, slot: str, kind: TensorType, ints: Sequence[int] | None = None
) -> Array:
    """`draw_value` for operand `slot` of `op`: its magnitudes where the op takes positive numbers only."""
    value = draw_value(rng, kind, ints)
    return _magnitudes(value) if slot == POSITIVE else value


def _magnitudes(value: Array) -> Array:
    """Float32 values or F32 rows without their signs."""
    return (value.view(np.uint32) & np.uint32(0x7FFFFFFF)).view(value.dtype)


@dataclass(frozen=True)
class Feed:
    """Everything one forward of a graph reads: actual row counts, inputs by key, weights, KV regions by key."""

    n_rows: Mapping[RowAxis, int]
    inputs: Mapping[str, Array]
    weights: Weights
    regions: dict[str, Array] = field(default_factory=dict[str, Array])

    def fresh_regions(self) -> dict[str, Array]:
        """A copy of the regions, for a run that changes them."""
        return {key: value.copy() for key, value in self.regions.items()}


def draw_feed(rng: np.random.Generator, graph: Graph, full: bool = False) -> Feed:
    """Legal random values for every leaf of `graph`: indices below their limits, windows inside their regions.

    The numbers of actual rows are drawn from 1 to the buckets, or are the buckets when `full`.
    """
    buckets: dict[RowAxis, int] = {}
    for node in graph:
        if node.type.rows is not None:
            buckets.setdefault(node.type.rows, node.type.shape[0])
    n_rows: dict[RowAxis, int] = {axis: b if full else int(rng.integers(1, b + 1)) for axis, b in buckets.items()}
    inputs = {n.attrs.key: _input_value(rng, graph, n, n_rows) for n in graph if n.op == "input"}
    weights = Weights({key: rows for n in graph for key, rows in _weight_rows(rng, graph, n)})
    regions = {n.attrs.key: draw_value(rng, n.type) for n in graph if n.op == "kv"}
    return Feed(n_rows, inputs, weights, regions)


def _weight_rows(rng: np.random.Generator, graph: Graph, node: Node) -> Iterator[tuple[str, Bytes]]:
    if node.op == "weight":
        *leading, width = node.attrs.shape
        rows = draw_rows(rng, node.attrs.dtype, (math.prod(leading), width))
        slots = {slot for u in graph.users[node.id] for slot, s in graph[u].operands(graph) if s is node}
        yield node.attrs.key, _magnitudes(rows) if POSITIVE in slots else rows
    if node.op == "weight_concat":
        for key, size in zip(node.attrs.keys, node.attrs.sizes, strict=True):
            yield key, draw_rows(rng, node.attrs.dtype, (size, node.attrs.width))


def _input_value(rng: np.random.Generator, graph: Graph, node: Node, n_rows: Mapping[RowAxis, int]) -> Array:
    kind = node.type
    if kind.rows is not None:
        kind = TensorType((n_rows[kind.rows], *kind.shape[1:]), kind.dtype, kind.rows)
    readers = [(graph[u], slot) for u in graph.users[node.id] for slot, s in graph[u].operands(graph) if s is node]
    for reader, slot in readers:
        if (reader.op, slot) == ("attention", "window"):
            return draw_window(rng, graph, reader, kind.shape[0])
        if slot == "cells" and reader.spec.writes is not None:
            cells = min(r.operand(graph, "region").type.shape[0] for r, s in readers if s == "cells")
            return rng.permutation(cells)[: kind.shape[0]].astype(np.int32)
    if kind.dtype is not I32:
        return draw_value(rng, kind)
    limit = min([node.attrs.limit or 1, *_row_limits(graph, readers, n_rows)])
    return rng.integers(0, limit, kind.shape, dtype=np.int32)


def _row_limits(graph: Graph, readers: Sequence[tuple[Node, str]], n_rows: Mapping[RowAxis, int]) -> Iterator[int]:
    """A lookup stays inside its table: a weight's rows, or the actual rows of the forward."""
    for reader, slot in readers:
        if (reader.op, slot) == ("get_rows", "ids"):
            table = graph[reader.sources[0]].type
            yield table.shape[0] if table.rows is None else n_rows[table.rows]


def draw_window(rng: np.random.Generator, graph: Graph, attention: Node, n_rows: int) -> Array:
    """Windows for an attention node: inside its cells, some rows empty."""
    window = attention.operand(graph, "window").type
    cells = attention.operand(graph, "k").type.shape[0]
    mode = window_mode(window.shape, attention.type.shape[0])
    if mode == "causal":
        limit: Any = attention.operand(graph, "positions").attrs.limit
        return rng.integers(0, cells - limit + 1, (1,), dtype=np.int32)
    if mode == "span":
        ends = np.sort(rng.integers(0, cells + 1, (n_rows, 2), dtype=np.int32), axis=1)
        ends[rng.random(n_rows) < 0.2, 1] = 0
        return np.where(ends[:, 1:] == 0, 0, ends)
    starts = rng.integers(0, cells, (n_rows, MAP_RUNS), dtype=np.int32)
    lengths = np.minimum(rng.integers(0, cells, (n_rows, MAP_RUNS), dtype=np.int32), cells - starts)
    lengths[rng.random((n_rows, MAP_RUNS)) < 0.3] = 0
    return np.stack([starts, lengths], axis=2).reshape(n_rows, 2 * MAP_RUNS)
