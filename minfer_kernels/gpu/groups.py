"""Launch groups: runs of nodes that one launch serves. The nodes stay in the graph; each group has its switch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minfer_ir.graph import Graph, Node
from minfer_ir.runtime.backend import BackendError, Split
from minfer_kernels.gpu.emit import GROUPS, emitter_of
from minfer_kernels.gpu.emitter import Emitter, Group

Spans = dict[int, tuple[int, int]]


def runs_of(graph: Graph, split: Split) -> Iterator[tuple[Group | None, Sequence[Node]]]:
    """The split's nodes, views aside, as runs that are emitted together: a group and its members, or one node."""
    nodes = [graph[n] for n in split.nodes if graph[n].spec.effect != "view"]
    i = 0
    while i < len(nodes):
        found = ((g, g.taken(graph, nodes, i)) for g in GROUPS if g.name not in split.groups_off)
        group, taken = next(((g, n) for g, n in found if n), (None, 1))
        yield group, nodes[i : i + taken]
        i += taken


def emit_nodes(emitter: Emitter, graph: Graph, split: Split) -> Spans:
    """Write the launches of a split; which of them, [first, stop), belong to which node.

    A group's belong to its first node, so that after a node has run its value is there.
    """
    spans: Spans = {}
    for group, members in runs_of(graph, split):
        start = len(emitter.launches)
        if group is None:
            _emit_one(emitter, members[0])
        else:
            emitter.label = f"{group.name}({', '.join(m.name for m in members)})"
            group.emit(emitter, members)
            emitter.label = None
        stop = len(emitter.launches)
        spans |= {m.id: (start if m is members[0] else stop, stop) for m in members}
    return spans


def _emit_one(emitter: Emitter, node: Node) -> None:
    emit = emitter_of(node.op)
    if emit is None:
        raise BackendError(f"gpu: no kernel for {node} ({node.op})")
    emit(emitter, node)
