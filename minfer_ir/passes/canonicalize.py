"""Put a graph into the one form that later passes expect."""

from __future__ import annotations

from dataclasses import dataclass

from minfer_ir.graph import Graph, Node
from minfer_ir.passes.base import Lowering
from minfer_ir.passes.clean import drop_dead
from minfer_ir.passes.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class Canonicalize:
    """Drop views that change nothing and nodes that nothing needs; reshape once instead of twice in a row.

    Dead nodes go before assignment, so that they decide nothing.
    """

    name: str = "canonicalize"

    def run(self, state: Lowering) -> Lowering:
        """The canonical graph."""
        return state.with_graph(drop_dead(_without_idle_views(_merged_reshapes(state.graph))))


def _merged_reshapes(graph: Graph) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph:
        source = rewriter.nodes[node.sources[0]] if node.op == "reshape" else None
        if source is not None and source.op == "reshape":
            rewriter.rebind(node.id, (source.sources[0],))
    return rewriter.finish()


def _without_idle_views(graph: Graph) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph:
        if node.spec.effect == "view" and _is_idle(node, graph):
            rewriter.replace(node.id, node.sources[0])
    return rewriter.finish()


def _is_idle(node: Node, graph: Graph) -> bool:
    """A view of the whole source in its own shape and order."""
    source = graph[node.sources[0]]
    if node.type != source.type:
        return False
    return node.op != "permute" or node.attrs.axes == tuple(range(len(node.type.shape)))
