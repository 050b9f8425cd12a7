"""What one step of a graph has to do: flops and bytes of every node, by the ops' own cost functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minfer_ir.evaluate import N_ROWS
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.attention import window_cells
from minfer_ir.opspec import Array, CellReads, Cost
from minfer_ir.types import TensorType


def step_costs(graph: Graph, inputs: Mapping[str, Array], stored: Mapping[int, int] | None = None) -> dict[int, Cost]:
    """The cost of every computed node of a step that is filled with `inputs`: rows as many as there are, not buckets.

    `stored`: bytes of a weight in the form that products read, by leaf, where a backend keeps it in one of its own.
    """
    computed = [node for node in graph if node.spec.effect not in ("leaf", "view")]
    return {node.id: _stored_costs(_cost(node, graph, inputs), node, graph, stored or {}) for node in computed}


def _cost(node: Node, graph: Graph, inputs: Mapping[str, Array]) -> Cost:
    sources = [_filled(graph[s].type, inputs) for s in node.sources]
    extra: dict[str, Any] = {"reads": _reads(node, graph, inputs)} if node.spec.effect == "reads_kv" else {}
    return node.spec.cost(node.attrs, _filled(node.type, inputs), *sources, **extra)


def _filled(bucket: TensorType, inputs: Mapping[str, Array]) -> TensorType:
    """The type with its actual rows."""
    if bucket.rows is None:
        return bucket
    rows = int(inputs[N_ROWS][0 if bucket.rows == "token" else 1])
    return replace(bucket, shape=(rows, *bucket.shape[1:]))


def _reads(node: Node, graph: Graph, inputs: Mapping[str, Array]) -> CellReads:
    sources = {slot.name: graph[s] for slot, s in zip(node.spec.operands, node.sources, strict=False)}
    positions, window = (inputs[sources[name].attrs.key] for name in ("positions", "window"))
    cells = window_cells(positions, window)
    return CellReads(sum(len(c) for c in cells), len(np.unique(np.concatenate(cells))))


def _stored_costs(cost: Cost, node: Node, graph: Graph, stored: Mapping[int, int]) -> Cost:
    if node.op == "get_rows":
        return cost
    more = sum(stored[s] - graph[s].type.nbytes for s in node.sources if s in stored)
    return Cost(cost.flops, cost.bytes + more, cost.resident + more)
