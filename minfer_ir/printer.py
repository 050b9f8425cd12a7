"""Graphs as text: one line per node, under a heading per model layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minfer_ir.attr_types import attr_fields
from minfer_ir.builder import leaf_key
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import attrs_to_json

LEAF_TYPE_ATTRS = ("shape", "dtype", "rows", "cells", "width")
"""Attrs that a leaf's line doesn't repeat: its type says them."""
ANNOTATION_COLUMN = 110
"""Annotations of shorter lines stand in this column at most; a longer line pushes its own to the right."""


def print_graph(graph: Graph, annotations: Mapping[int, str] | None = None, block: int | None = None) -> str:
    """The graph as text, nodes in execution order.

    A line reads `%12 blk.0.attn_q = matmul(%9 blk.0.norm, %3 blk.0.attn_q.weight) : f32[8, 576] rows=token @cpu`.
    Attrs at their default are left out; `-> output` marks the outputs. `annotations` adds a column: text per node id,
    e.g. where an allocated value lies. `block` keeps one layer.
    """
    columns = annotations or {}
    kept = [n for n in graph if block is None or n.block == block]
    lines = {n.id: print_node(graph, n) + (" -> output" if n.id in graph.outputs else "") for n in kept}
    noted = [len(line) for i, line in lines.items() if i in columns]
    width = min(max(noted, default=0), ANNOTATION_COLUMN)
    out: list[str] = []
    heading: int | None = None
    for node in kept:
        if node.block != heading:
            heading = node.block
            out.append("no block:" if heading is None else f"block {heading}:")
        line = f"  {lines[node.id]}" if heading is not None else lines[node.id]
        note = columns.get(node.id)
        out.append(line if note is None else f"{line:<{width + 2}} | {note}")
    return "\n".join(out) + "\n"


def print_node(graph: Graph, node: Node) -> str:
    """One node: id, name, op with operands and attrs, type, view and backend."""
    arguments = [str(graph[s]) for s in node.sources] + list(attr_texts(node))
    line = f"{node} = {node.op}({', '.join(arguments)}) : {node.type}"
    if node.view is not None:
        strides = ", ".join(map(str, node.view.strides))
        line += f" view(%{node.view.source} + {node.view.offset}, strides [{strides}])"
    return line + (f" @{node.backend}" if node.backend else "")


def attr_texts(node: Node) -> Iterator[str]:
    """The attrs as `name=value`, without those at their default and those that name or type of a leaf repeat."""
    defaults = {field.name: field.default for field in attr_fields(node.spec.Attrs)}
    for name, value in attrs_to_json(node.attrs).items():
        if getattr(node.attrs, name) == defaults[name] or (node.is_leaf() and name in LEAF_TYPE_ATTRS):
            continue
        if not (name in ("key", "keys") and leaf_key(node.attrs) == node.name):
            yield f"{name}={_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={_value(v)}" for k, v in value.items()) + "}"  # pyright: ignore
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"  # pyright: ignore
    return str(value)
