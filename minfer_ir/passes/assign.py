"""Give every node the backend that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minfer_ir.graph import Graph, Node
from minfer_ir.passes.base import Lowering, LoweringError
from minfer_ir.passes.legalize import refusal
from minfer_ir.runtime.backend import Backend, describe


@dataclass(frozen=True, slots=True)
class Assign:
    """The first backend of the device plan that can run a node gets it.

    A block pinned by the plan goes where it is pinned or is refused. Nodes on one KV region share a backend, a view
    stays with its source, a leaf takes the backend of its first reader.
    """

    name: str = "assign"

    def run(self, state: Lowering) -> Lowering:
        """The graph with `backend` set on every node; raises LoweringError for a node that nobody can run."""
        _check_plan(state)
        graph, chosen = state.graph, dict[int, str]()
        for node in graph:
            if not node.is_leaf() and node.spec.effect != "view" and node.id not in chosen:
                group = _kv_group(graph, node)
                backend = _choose(group, graph, state)
                chosen |= {n.id: backend for n in group}
        for node in graph:
            if node.spec.effect == "view" and node.sources[0] in chosen:
                chosen[node.id] = chosen[node.sources[0]]
        for node in reversed(graph.nodes):
            if node.id not in chosen:
                readers = (chosen[u] for u in graph.users[node.id] if u in chosen)
                chosen[node.id] = next(readers, state.params.devices.order[0])
        return state.with_graph(graph.rewrite(lambda n: replace(n, backend=chosen[n.id])))


def _check_plan(state: Lowering) -> None:
    plan = state.params.devices
    unknown = sorted({*plan.order, *(b for _, b in plan.blocks)} - set(state.backends))
    if unknown or not plan.order:
        raise LoweringError(f"unknown backend {', '.join(unknown) or '(none)'}; have: {', '.join(state.backends)}")


def _kv_group(graph: Graph, node: Node) -> list[Node]:
    """The nodes that must go together: everything on the KV regions that `node` touches."""
    regions = _regions(graph, node)
    if not regions:
        return [node]
    group = [node]
    grown = True
    while grown:
        members = [n for n in graph if not n.is_leaf() and regions & _regions(graph, n)]
        grown = len(members) > len(group)
        group, regions = members, regions.union(*(_regions(graph, n) for n in members))
    return group


def _regions(graph: Graph, node: Node) -> set[int]:
    return (
        {o for o in map(graph.owner, node.sources) if graph[o].op == "kv"} if node.spec.effect in KV_EFFECTS else set()
    )


def _choose(group: Sequence[Node], graph: Graph, state: Lowering) -> str:
    pinned = {b for block, b in state.params.devices.blocks for n in group if n.block == block}
    if len(pinned) > 1:
        raise LoweringError(f"{', '.join(n.name for n in group)} share a KV region but are pinned to {sorted(pinned)}")
    reasons: list[str] = []
    for name in pinned or state.params.devices.order:
        refused = _first_refusal(group, graph, state.backends[name])
        if refused is None:
            return name
        reasons.append(f"{name}: {refused}")
    raise LoweringError(f"no backend can run {'; '.join(reasons)}")


def _first_refusal(group: Sequence[Node], graph: Graph, backend: Backend) -> str | None:
    for node in group:
        operands = [graph[s].type for s in node.sources]
        reason = refusal(backend, node, operands)
        if reason is not None:
            return f"{describe(node, operands)}: {reason}"
    return None


KV_EFFECTS = ("reads_kv", "writes_kv")
