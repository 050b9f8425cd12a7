"""Graphs as JSON: every stage that is a graph can be written, read back into an equal Graph, and diffed by line.

`docs/graph.schema.json` (from `minfer_ir.schema`) describes the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any, cast

from minfer_ir.attr_types import AttrError, attr_fields, revive
from minfer_ir.graph import Graph, GraphError, Node, ViewAlias
from minfer_ir.ops import op_named
from minfer_ir.opspec import OpError, attrs_from_json, attrs_to_json
from minfer_ir.types import TensorType

VERSION = 1


class GraphJsonError(GraphError):
    """A document that isn't a graph; the message starts with the place, e.g. `nodes[3].sources[0]`."""

    def __init__(self, path: str, message: str, node: Node | None = None) -> None:
        super().__init__(f"{path}: {message}", node)
        self.path = path


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The fields of a node in a document, next to its `attrs` object."""

    id: int
    name: str
    op: str
    sources: tuple[int, ...]
    type: TensorType
    block: int | None = None
    backend: str | None = None
    view: ViewAlias | None = None


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """The fields of a document, next to its `nodes` array and `plan` object."""

    version: int
    outputs: tuple[int, ...]
    stage: str | None = None


def to_json(graph: Graph, stage: str | None = None, plan: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The graph as plain JSON values.

    `stage` names the pass that it comes from and `plan` is what a later stage knows besides the graph (buffers, splits,
    totals); reading ignores both.
    """
    document: dict[str, Any] = {"version": VERSION}
    if stage is not None:
        document["stage"] = stage
    document |= {"outputs": list(graph.outputs), "nodes": [_node_json(n) for n in graph]}
    return document if plan is None else document | {"plan": dict(plan)}


def dumps(graph: Graph, stage: str | None = None, plan: Mapping[str, Any] | None = None) -> str:
    """The document as text, one node a line. Raises ValueError for an attr that JSON can't hold (NaN, infinity)."""
    document = to_json(graph, stage, plan)
    nodes = ",\n  ".join(json.dumps(n, allow_nan=False) for n in document.pop("nodes"))
    rest = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in document.items()]
    return "{" + ",\n ".join([*rest, f'"nodes": [\n  {nodes}\n ]']) + "}\n"


def loads(text: str) -> Graph:
    """The graph in a JSON text; raises GraphJsonError for anything that isn't one."""
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise GraphJsonError("document", f"not JSON: {error}") from None
    return from_json(document)


def from_json(document: Any) -> Graph:
    """The graph of a document, its nodes in any order, verified.

    Raises GraphJsonError with the place of the first thing wrong; a cycle is named by its nodes.
    """
    fields = _mapping(document, "document")
    version = fields.get("version")
    if version != VERSION:
        raise GraphJsonError("version", f"this reader knows version {VERSION}, got {short(version)}")
    _mapping(fields.get("plan", {}), "plan")
    header = _record(DocumentRecord, {k: v for k, v in fields.items() if k not in ("nodes", "plan")}, "")
    listed = fields.get("nodes")
    if not isinstance(listed, list):
        raise GraphJsonError("nodes", f"expected an array, got {short(listed)}")
    nodes = [_read_node(value, f"nodes[{i}]") for i, value in enumerate(cast("list[Any]", listed))]
    _check_references(nodes, header.outputs)
    places = {n.name: f"nodes[{i}]" for i, n in enumerate(nodes)}
    try:
        return Graph.ordered(nodes, header.outputs).verify()
    except GraphError as error:
        place = places[error.node.name] if error.node else "nodes"
        raise GraphJsonError(place, str(error), error.node) from None


def _node_json(node: Node) -> dict[str, Any]:
    kind, view = node.type, node.view
    record: dict[str, Any] = {
        "id": node.id,
        "name": node.name,
        "op": node.op,
        "sources": list(node.sources),
        "type": {"shape": list(kind.shape), "dtype": kind.dtype.name, "rows": kind.rows},
        "attrs": attrs_to_json(node.attrs),
        "block": node.block,
        "backend": node.backend,
        "view": None,
    }
    if view is not None:
        record["view"] = {"source": view.source, "offset": view.offset, "strides": list(view.strides)}
    return record


def _read_node(value: Any, path: str) -> Node:
    fields = dict(_mapping(value, path))
    attrs = _mapping(fields.pop("attrs", {}), f"{path}.attrs")
    record: NodeRecord = _record(NodeRecord, fields, path)
    try:
        spec = op_named(record.op)
    except OpError as error:
        raise GraphJsonError(f"{path}.op", str(error)) from None
    try:
        typed = attrs_from_json(spec, attrs)
    except OpError as error:
        raise GraphJsonError(f"{path}.attrs", str(error)) from None
    try:
        spec.check_count(len(record.sources))
    except OpError as error:
        raise GraphJsonError(f"{path}.sources", str(error)) from None
    values = {field.name: getattr(record, field.name) for field in attr_fields(NodeRecord)}
    return Node(**values, attrs=typed)


def _check_references(nodes: Sequence[Node], outputs: Sequence[int]) -> None:
    ids: set[int] = set()
    names: set[str] = set()
    for i, node in enumerate(nodes):
        if node.id in ids:
            raise GraphJsonError(f"nodes[{i}].id", f"{node.id} is taken by an earlier node", node)
        if node.name in names:
            raise GraphJsonError(f"nodes[{i}].name", f"{node.name!r} is taken by an earlier node", node)
        ids.add(node.id)
        names.add(node.name)
    references = [(f"nodes[{i}].sources[{j}]", s) for i, n in enumerate(nodes) for j, s in enumerate(n.sources)]
    references += [(f"nodes[{i}].view.source", n.view.source) for i, n in enumerate(nodes) if n.view]
    references += [(f"outputs[{i}]", o) for i, o in enumerate(outputs)]
    for path, target in references:
        if target not in ids:
            raise GraphJsonError(path, f"no node has id {target}")


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GraphJsonError(path, f"expected an object, got {short(value)}")
    return cast("Mapping[str, Any]", value)


def _record(kind: type[Any], values: Mapping[str, Any], path: str) -> Any:
    try:
        return revive(kind, values, path)
    except AttrError as error:
        place, _, message = str(error).partition(": ")
        raise GraphJsonError(place, message) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise AttrError(f"the key {repeated[0]!r} appears twice in one object")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise AttrError(f"{name} isn't a JSON number")
