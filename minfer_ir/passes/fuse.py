"""Replace compositions by the fused ops that stand for them, where a backend has the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minfer_ir.graph import Graph, GraphError, Node
from minfer_ir.ops import FUSED
from minfer_ir.opspec import FusedOp, OpError, attrs_from_json, checked
from minfer_ir.passes.base import Lowering
from minfer_ir.passes.concat import CONCAT_SWITCH, concat_matmuls
from minfer_ir.passes.legalize import refusal
from minfer_ir.passes.pattern import Match, Pattern, find, patterns_of
from minfer_ir.passes.rewriter import Rewriter
from minfer_ir.runtime.backend import Backend

FUSIONS = (*dict.fromkeys(op.switch for op in FUSED.values()), CONCAT_SWITCH)
"""Every switch of our own, in the order the rewrites are tried."""


def fusion_names() -> tuple[str, ...]:
    """Every switch, those of enabled plug-ins behind our own."""
    return tuple(dict.fromkeys((*FUSIONS, *(op.switch for op in FUSED.values()))))


@dataclass(frozen=True, slots=True)
class Fuse:
    """Apply every fusion that isn't switched off, in declaration order; matmuls that are left over are stacked.

    It runs once before legalization and once after, when the ops that legalization inserts can take part.
    """

    name: str = "fuse"

    def run(self, state: Lowering) -> Lowering:
        """The graph with compositions replaced."""
        graph = state.graph
        for op in FUSED.values():
            if op.switch not in state.params.fusions_off:
                graph = fuse_one(graph, op.name, state)
        if CONCAT_SWITCH not in state.params.fusions_off:
            graph = concat_matmuls(graph, state.backends)
        return state.with_graph(graph)


def fuse_one(graph: Graph, name: str, state: Lowering) -> Graph:
    """Replace every match of fused op `name`."""
    matches = _disjoint_matches(graph, name, state)
    if not matches:
        return graph
    try:
        return _apply(graph, name, matches)
    except GraphError:
        # Each match alone closes no cycle, but several at once can: take only the first and search again.
        return fuse_one(_apply(graph, name, matches[:1]), name, state)


def _disjoint_matches(graph: Graph, name: str, state: Lowering) -> list[Match]:
    """Legal matches that the backend can run, first come first served, no node in two of them."""
    taken, found = set[int](), list[Match]()
    patterns = [p for p in patterns_of(name) if p.ops <= graph.by_op.keys()]
    for node in _anchors(patterns, graph):
        anchored = (find(p, graph, node) for p in patterns if node.op == p.results[-1].op)
        match = next((m for m in anchored if m is not None), None)
        if match is None or not _runnable(name, match, graph, state):
            continue
        members = match.inner | set(match.results)
        if taken.isdisjoint(members):
            taken |= members
            found.append(match)
    return found


def _anchors(patterns: Sequence[Pattern], graph: Graph) -> list[Node]:
    """The nodes that a match of one of the patterns could end in, in order."""
    ops = {p.results[-1].op for p in patterns}
    return sorted((node for op in ops for node in graph.by_op[op]), key=lambda node: node.id)


def _runnable(name: str, match: Match, graph: Graph, state: Lowering) -> bool:
    """Whether the fused op takes these types (its parts may take more) and the nodes' backend runs it, once legal."""
    spec = FUSED[name]
    backend: Backend = state.backends[graph[match.results[-1]].backend or ""]
    operands = tuple([graph[s].type for s in _sources(spec, match)])
    attrs = attrs_from_json(spec, dict(match.attrs))
    try:
        out = checked(spec, attrs, operands)
    except OpError:
        return False
    return refusal(backend, name, attrs, out, operands) is None


def _sources(spec: FusedOp, match: Match) -> tuple[int, ...]:
    return tuple(match.operands[o.name] for o in spec.operands if o.name in match.operands)


def _apply(graph: Graph, name: str, matches: Sequence[Match]) -> Graph:
    rewriter = Rewriter(graph)
    for match in matches:
        _replace(rewriter, FUSED[name], match)
    return rewriter.finish()


def _replace(rewriter: Rewriter, spec: FusedOp, match: Match) -> None:
    """One match out, the fused node in; several results become parts of it."""
    graph = rewriter.graph
    anchor, sources = graph[match.results[-1]], _sources(spec, match)
    for inner in match.inner:
        rewriter.drop(inner)
    fused = rewriter.add(spec.name, sources, dict(match.attrs), anchor, f"{anchor.name}.{spec.name}")
    if len(match.results) == 1:
        rewriter.substitute(anchor.id, fused.id)
        return
    start = 0
    widths = spec.parts(fused.attrs, *(graph[s].type for s in sources))
    for result, width in zip(match.results, widths, strict=True):
        window: dict[str, Any] = {"starts": (0, start), "shape": (fused.type.shape[0], width)}
        part = rewriter.add("view", (fused.id,), window, anchor, f"{graph[result].name}.part", graph[result])
        rewriter.substitute(result, part.id)
        start += width
