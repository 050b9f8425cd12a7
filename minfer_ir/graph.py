"""The graph: a flat, ordered list of frozen nodes, each with one output."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minfer_ir.ops import op_named
from minfer_ir.opspec import Op, OpError, checked
from minfer_ir.types import Strides, TensorType


class GraphError(ValueError):
    """A graph that is not well formed; the message names the nodes, `node` is the one at fault where it is one."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, slots=True)
class ViewAlias:
    """Where a view lies in its source: bytes from the source's first element, and byte strides of its axes."""

    source: int
    offset: int
    strides: Strides


@dataclass(frozen=True, slots=True)
class Node:
    """One op applied to earlier nodes.

    `id` is the node's index in its graph. `name` is stable across passes and unique in a graph. `block` is the
    model layer it belongs to. `backend` is set by the assign pass.
    """

    id: int
    name: str
    op: str
    sources: tuple[int, ...]
    type: TensorType
    attrs: Any
    block: int | None = None
    backend: str | None = None
    view: ViewAlias | None = None

    @property
    def spec(self) -> Op:
        """The op's declaration."""
        return op_named(self.op)

    @property
    def strides(self) -> Strides:
        """Byte strides: the view's, or contiguous ones."""
        return self.view.strides if self.view else self.type.strides

    def operands(self, graph: Graph) -> Iterator[tuple[str, Node]]:
        """(operand name, source node) pairs in declaration order."""
        for slot, source in zip(self.spec.operands, self.sources, strict=False):
            yield slot.name, graph[source]

    def operand(self, graph: Graph, name: str) -> Node:
        """The source bound to operand `name`."""
        for slot, source in self.operands(graph):
            if slot == name:
                return source
        raise KeyError(f"{self.name} ({self.op}) has no operand {name!r}")

    def on(self, backend: str) -> Node:
        """The same node, given to `backend`."""
        return Node(self.id, self.name, self.op, self.sources, self.type, self.attrs, self.block, backend, self.view)

    def is_leaf(self) -> bool:
        """True for inputs, weights and KV regions."""
        return self.spec.effect == "leaf"

    def __str__(self) -> str:
        return f"%{self.id} {self.name}"


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order plus the ids of the outputs.

    Sources always come before their users, so every walk is a plain loop. Build one with `GraphBuilder`, or with
    `Graph.ordered` from nodes in any order. Equality compares nodes and outputs.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def users(self) -> Mapping[int, tuple[int, ...]]:
        """For every node, the nodes that read it, ascending; a node that reads it twice appears once."""
        users: dict[int, list[int]] = {n.id: [] for n in self.nodes}
        for node in self.nodes:
            for source in dict.fromkeys(node.sources):
                users[source].append(node.id)
        return {k: tuple(v) for k, v in users.items()}

    @cached_property
    def by_op(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes of every op that occurs, in order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.op, []).append(node)
        return {op: tuple(nodes) for op, nodes in found.items()}

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {n.name: n for n in self.nodes}

    def owner(self, node_id: int) -> int:
        """The node whose storage holds `node_id`: follows views and in-place stores to the end of the chain."""
        node = self.nodes[node_id]
        while (source := storage_source(node)) is not None:
            node = self.nodes[source]
        return node.id

    def verify(self) -> Graph:
        """Check order, names, types and views against the op declarations; returns self or raises GraphError."""
        seen: set[str] = set()
        for index, node in enumerate(self.nodes):
            _verify_node(self, index, node, seen)
            seen.add(node.name)
        if bad := [o for o in self.outputs if not 0 <= o < len(self.nodes)]:
            raise GraphError(f"outputs {bad} aren't nodes; the graph has {len(self.nodes)}")
        self._verify_stores()
        return self

    def _verify_stores(self) -> None:
        """Each version of a region is written at most once, and never read after a later write."""
        latest: dict[int, int] = {}
        for node in self.nodes:
            for source in node.sources:
                owner, version = self.owner(source), self._version(source)
                if self.nodes[owner].op == "kv" and latest.get(owner, version) != version:
                    writer = self.nodes[latest[owner]]
                    raise GraphError(f"{node} reads {self.nodes[source]} after {writer} wrote it", node)
            if node.spec.effect == "writes_kv":
                latest[self.owner(node.id)] = node.id

    def _version(self, node_id: int) -> int:
        """The leaf, store or computed node that a chain of views starts from."""
        view = self.nodes[node_id].view
        while view is not None:
            node_id = view.source
            view = self.nodes[node_id].view
        return node_id

    @staticmethod
    def ordered(nodes: Iterable[Node], outputs: Sequence[int]) -> Graph:
        """A graph from nodes in any order whose `sources` refer to their ids; ids are renumbered.

        The order is stable: of the nodes that are ready, the one that came first is next. A store waits for the other
        readers of the version that it overwrites. Raises GraphError for a missing source or a cycle, naming the nodes
        on it.
        """
        pending = list(nodes)
        by_id = {n.id: n for n in pending}
        if len(by_id) != len(pending):
            raise GraphError("two nodes have the same id")
        order = _stable_order(pending, by_id)
        new_id = {old.id: i for i, old in enumerate(order)}
        if missing := [o for o in outputs if o not in new_id]:
            raise GraphError(f"outputs {missing} aren't nodes of the graph")
        return Graph(tuple(_renumber(n, new_id) for n in order), tuple(new_id[o] for o in outputs))

    def rewrite(self, change: Callable[[Node], Node]) -> Graph:
        """The graph with every node replaced by `change(node)`, which must keep the id."""
        return Graph(tuple(change(n) for n in self.nodes), self.outputs)


def storage_source(node: Node) -> int | None:
    """The source whose storage `node` shares: a view's source, or the region that a store writes into."""
    if node.view is not None:
        return node.view.source
    return None if node.spec.writes is None else _written_source(node)


def make_alias(spec: Op, attrs: Any, source: Node) -> ViewAlias | None:
    """The alias of a view op over `source`; None when it needs a copy first."""
    found = spec.alias(attrs, source.type, source.strides)
    return None if found is None else ViewAlias(source.id, *found)


def _verify_node(graph: Graph, index: int, node: Node, seen: set[str]) -> None:
    if node.id != index:
        raise GraphError(f"{node} stands at index {index}", node)
    if node.name in seen:
        raise GraphError(f"two nodes are named {node.name!r}", node)
    if late := [s for s in node.sources if not 0 <= s < index]:
        raise GraphError(f"{node} reads {late}, which don't come before it", node)
    try:
        inferred = checked(node.spec, node.attrs, tuple([graph[s].type for s in node.sources]))
    except OpError as error:
        raise GraphError(f"{node}: {error}", node) from None
    if inferred != node.type:
        raise GraphError(f"{node} is declared {node.type}, its op gives {inferred}", node)
    _verify_view(graph, node)


def _verify_view(graph: Graph, node: Node) -> None:
    is_view = node.spec.effect == "view"
    expected = make_alias(node.spec, node.attrs, graph[node.sources[0]]) if is_view else None
    if is_view and expected is None:
        source = graph[node.sources[0]]
        raise GraphError(f"{node} can't view {source} with strides {source.strides}: it needs a contiguous copy", node)
    if node.view != expected:
        raise GraphError(f"{node} has view {node.view}, its op gives {expected}", node)


def _stable_order(nodes: Sequence[Node], by_id: Mapping[int, Node]) -> list[Node]:
    if _is_in_order(nodes, by_id):
        return list(nodes)
    position = {n.id: i for i, n in enumerate(nodes)}
    needs = _dependencies(nodes, by_id)
    waiting = {i: len(before) for i, before in needs.items()}
    followers: dict[int, list[int]] = {n.id: [] for n in nodes}
    for i, before in needs.items():
        for other in before:
            followers[other].append(i)
    ready = [position[i] for i, count in waiting.items() if not count]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for follower in followers[node.id]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, position[follower])
    if len(order) < len(nodes):
        raise GraphError(f"the graph has a cycle: {_cycle(nodes, needs, {n.id for n in order})}")
    return order


def _is_in_order(nodes: Sequence[Node], by_id: Mapping[int, Node]) -> bool:
    """Whether everything a node waits for stands before it, which most rewrites leave as it was."""
    seen, overwritten = set[int](), set[int]()
    for node in nodes:
        if not seen.issuperset(node.sources):
            return False
        if overwritten and any(_unviewed(by_id, source) in overwritten for source in node.sources):
            return False
        if node.spec.effect == "writes_kv":
            overwritten.add(_unviewed(by_id, _written_source(node)))
        seen.add(node.id)
    return True


def _dependencies(nodes: Sequence[Node], by_id: Mapping[int, Node]) -> dict[int, set[int]]:
    """The nodes that have to come before each: its sources, and for a store the readers of what it overwrites."""
    needs = {n.id: set(n.sources) for n in nodes}
    for node in nodes:
        if missing := [s for s in node.sources if s not in by_id]:
            raise GraphError(f"{node} reads %{missing[0]}, which isn't in the graph", node)
    stores = [n for n in nodes if n.spec.effect == "writes_kv"]
    if not stores:
        return needs
    written = {store.id: _unviewed(by_id, _written_source(store)) for store in stores}
    readers: dict[int, set[int]] = {version: set() for version in written.values()}
    rivals: dict[int, set[int]] = {version: set() for version in written.values()}
    for node in nodes:
        for source in node.sources:
            if (version := _unviewed(by_id, source)) in readers:
                readers[version].add(node.id)
    for store, version in written.items():
        rivals[version].add(store)
    for store, version in written.items():
        needs[store] |= readers[version] - rivals[version]
    return needs


def _written_source(store: Node) -> int:
    return store.sources[[slot.name for slot in store.spec.operands].index(store.spec.writes or "")]


def _unviewed(by_id: Mapping[int, Node], node_id: int) -> int:
    """The node that a chain of views starts from; the aliases may not be derived yet. A cycle of views ends it."""
    seen = {node_id}
    while by_id[node_id].spec.effect == "view" and (source := by_id[node_id].sources[0]) not in seen:
        seen.add(source)
        node_id = source
    return node_id


def _cycle(nodes: Sequence[Node], needs: Mapping[int, set[int]], done: set[int]) -> str:
    import networkx

    edges = networkx.DiGraph([(s, n.id) for n in nodes if n.id not in done for s in needs[n.id] if s not in done])
    names = {n.id: n.name for n in nodes}
    found: list[tuple[int, int]] = list(networkx.find_cycle(edges))  # pyright: ignore
    cycle = [names[source] for source, _ in found]
    return " -> ".join([*cycle, cycle[0]])


def _renumber(node: Node, new_id: Mapping[int, int]) -> Node:
    number, sources = new_id[node.id], tuple([new_id[s] for s in node.sources])
    if number == node.id and sources == node.sources:
        return node
    view = ViewAlias(new_id[node.view.source], node.view.offset, node.view.strides) if node.view else None
    return Node(number, node.name, node.op, sources, node.type, node.attrs, node.block, node.backend, view)
