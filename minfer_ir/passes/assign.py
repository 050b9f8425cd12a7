"""Give every node the backend that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        together = _kv_groups(graph)
        for node in graph:
            if not node.is_leaf() and node.spec.effect != "view" and node.id not in chosen:
                group = together.get(node.id, [node])
                backend = _choose(group, graph, state)
                chosen |= {n.id: backend for n in group}
        for node in graph:
            if node.spec.effect == "view" and node.sources[0] in chosen:
                chosen[node.id] = chosen[node.sources[0]]
        for node in reversed(graph.nodes):
            if node.id not in chosen:
                readers = (chosen[u] for u in graph.users[node.id] if u in chosen)
                chosen[node.id] = next(readers, state.params.devices.order[0])
        return state.with_graph(graph.rewrite(lambda n: n.on(chosen[n.id])))


def _check_plan(state: Lowering) -> None:
    plan = state.params.devices
    unknown = sorted({*plan.order, *(b for _, b in plan.blocks)} - set(state.backends))
    if not plan.order:
        raise LoweringError(f"the device plan names no backend; have: {', '.join(state.backends)}")
    if unknown:
        raise LoweringError(f"unknown backend {', '.join(unknown)}; have: {', '.join(state.backends)}")
    pinned, blocks = [block for block, _ in plan.blocks], {n.block for n in state.graph}
    if bad := [b for b in pinned if b not in blocks or pinned.count(b) > 1]:
        reason = "twice" if bad[0] in blocks else "but the model has no such block"
        raise LoweringError(f"the device plan pins block {bad[0]}, {reason}")


def _kv_groups(graph: Graph) -> dict[int, list[Node]]:
    """For every node on a KV region, the nodes that must go with it: those on a region that the group touches."""
    groups: list[tuple[set[int], list[Node]]] = []
    for node in graph:
        if node.spec.effect not in KV_EFFECTS:
            continue
        regions = {o for o in map(graph.owner, node.sources) if graph[o].op == "kv"}
        joined = [g for g in groups if g[0] & regions]
        groups = [g for g in groups if not g[0] & regions]
        groups.append((regions.union(*(r for r, _ in joined)), [*(n for _, ns in joined for n in ns), node]))
    return {n.id: nodes for _, nodes in groups for n in nodes}


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
        reason = refusal(backend, node.op, node.attrs, node.type, operands)
        if reason is not None:
            return f"{describe(node, operands)}: {reason}"
    return None


KV_EFFECTS = ("reads_kv", "writes_kv")
