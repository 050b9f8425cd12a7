"""Building a changed graph node by node."""

from __future__ import annotations

from dataclasses import replace
from operator import is_
from typing import Any

from minfer_ir.graph import Graph, Node, ViewAlias, make_alias
from minfer_ir.ops import OPS
from minfer_ir.opspec import attrs_from_json, checked


class Rewriter:
    """Collects the nodes of a new graph.

    Kept nodes keep their old ids and new ones get fresh ids, until `finish` sorts and renumbers everything. `replaced`
    redirects readers of an old id to another one.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[int, Node] = {n.id: n for n in graph}
        self._next = len(graph)
        self._names = {n.name for n in graph}
        self._replaced: dict[int, int] = {}
        self._made_for: dict[int, int] = {}
        self._renamed: dict[int, str] = {}

    def node(self, node_id: int) -> Node:
        """A node of the new graph by its old or fresh id, after replacements."""
        return self.nodes[self.resolve(node_id)]

    def resolve(self, node_id: int) -> int:
        """Where readers of `node_id` are sent."""
        while node_id in self._replaced:
            node_id = self._replaced[node_id]
        return node_id

    def add(
        self, op: str, sources: tuple[int, ...], attrs: dict[str, Any], like: Node, name: str, tag: Node | None = None
    ) -> Node:
        """A new node that stands where `like` stands, with the block and backend of `tag` (`like` when None)."""
        tag = tag or like
        spec = OPS[op]
        values = attrs_from_json(spec, attrs)
        kind = checked(spec, values, tuple([self.node(s).type for s in sources]))
        view: ViewAlias | None = None
        if spec.effect == "view":
            view = make_alias(spec, values, self.node(sources[0]))
            if view is None:
                raise ValueError(f"{name}: {op} over {self.node(sources[0])} needs a contiguous source")
        node = Node(self._next, self._unique(name), op, sources, kind, values, tag.block, tag.backend, view)
        self.nodes[node.id] = node
        self._made_for[node.id] = self._made_for.get(like.id, like.id)
        self._next += 1
        return node

    def replace(self, old: int, new: int) -> None:
        """Send every reader of `old` to `new` and drop `old`."""
        self._replaced[old] = new
        del self.nodes[old]

    def substitute(self, old: int, new: int) -> None:
        """As `replace`, for a `new` that computes the same value: it takes over the name."""
        self._renamed[new] = self.nodes[old].name
        self.replace(old, new)

    def drop(self, node_id: int) -> None:
        """Remove a node that nothing reads any more."""
        del self.nodes[node_id]

    def rebind(self, node_id: int, sources: tuple[int, ...]) -> None:
        """Give a kept node other sources."""
        if sources != self.nodes[node_id].sources:
            self.nodes[node_id] = replace(self.nodes[node_id], sources=sources)

    def finish(self) -> Graph:
        """The new graph: sources resolved, views derived anew, nodes in a stable order; the old one if all is kept."""
        resolved = [self._resolved(n) for n in self.nodes.values()]
        if len(resolved) == len(self.graph) and all(map(is_, resolved, self.graph)):
            return self.graph
        resolved.sort(key=self._position)
        graph = Graph.ordered(resolved, [self.resolve(o) for o in self.graph.outputs])
        return with_views(graph)

    def _resolved(self, node: Node) -> Node:
        name = self._renamed.get(node.id, node.name)
        if self._replaced.keys().isdisjoint(node.sources):
            return node if name == node.name else replace(node, name=name)
        sources = tuple([self.resolve(s) for s in node.sources])
        return Node(node.id, name, node.op, sources, node.type, node.attrs, node.block, node.backend)

    def _position(self, node: Node) -> tuple[int, int, int]:
        """A new node stands just before the old node it was made for."""
        if node.id < len(self.graph):
            return node.id, 1, 0
        return self._made_for[node.id], 0, node.id

    def _unique(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}.{count}"
        self._names.add(name)
        return name


def with_views(graph: Graph) -> Graph:
    """The graph with every view's alias derived from its source as it is now."""
    nodes: list[Node] = []
    for node in graph:
        view = make_alias(node.spec, node.attrs, nodes[node.sources[0]]) if node.spec.effect == "view" else None
        nodes.append(node if view == node.view else replace(node, view=view))
    return Graph(tuple(nodes), graph.outputs)
