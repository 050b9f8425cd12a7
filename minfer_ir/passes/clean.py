"""Common subexpressions merged, dead nodes dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minfer_ir.graph import Graph
from minfer_ir.passes.base import Lowering
from minfer_ir.passes.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class Cse:
    """Nodes with the same op, sources and attrs on the same backend become one."""

    name: str = "cse"

    def run(self, state: Lowering) -> Lowering:
        """The graph without repeats."""
        return state.with_graph(merge_equal(state.graph))


@dataclass(frozen=True, slots=True)
class Dce:
    """Nodes that no output and no store needs are dropped. Inputs stay: they are what a step must be filled with."""

    name: str = "dce"

    def run(self, state: Lowering) -> Lowering:
        """The graph without dead nodes."""
        return state.with_graph(drop_dead(state.graph))


def merge_equal(graph: Graph) -> Graph:
    """One node per distinct computation.

    Stores need no care: a read names the version of the region that it sees, and a version is written once.
    """
    rewriter = Rewriter(graph)
    first: dict[tuple[Any, ...], int] = {}
    for node in graph:
        key = (node.op, tuple(map(rewriter.resolve, node.sources)), node.attrs, node.backend)
        if first.setdefault(key, node.id) != node.id:
            rewriter.replace(node.id, first[key])
    return rewriter.finish()


def drop_dead(graph: Graph) -> Graph:
    """Only what is needed, in the same order."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.spec.effect == "writes_kv" or node.op == "input" or node.id in needed:
            needed.add(node.id)
            needed.update(node.sources)
    rewriter = Rewriter(graph)
    for node in graph:
        if node.id not in needed:
            rewriter.drop(node.id)
    return rewriter.finish()
