"""Replace compositions by the fused ops that stand for them, where a backend has the kernel."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from minfer_ir.graph import Graph, Node
from minfer_ir.ops import FUSED, OPS
from minfer_ir.opspec import attrs_from_json
from minfer_ir.passes.base import Lowering
from minfer_ir.passes.concat import CONCAT_SWITCH, concat_matmuls
from minfer_ir.passes.pattern import Match, find, pattern_of
from minfer_ir.passes.rewriter import Rewriter
from minfer_ir.runtime.backend import Backend

FUSIONS = (CONCAT_SWITCH, *dict.fromkeys(op.switch for op in FUSED.values()))
"""Every switch, in the order the rewrites are tried."""


@dataclass(frozen=True, slots=True)
class Fuse:
    """Apply every fusion that isn't switched off, to a fixed point each, in declaration order.

    It runs once before legalization and once after, when the ops that legalization inserts can take part.
    """

    name: str = "fuse"

    def run(self, state: Lowering) -> Lowering:
        """The graph with compositions replaced."""
        graph = state.graph
        if CONCAT_SWITCH not in state.params.fusions_off:
            graph = concat_matmuls(graph, state.backends)
        for op in FUSED.values():
            if op.switch not in state.params.fusions_off:
                graph = fuse_one(graph, op.name, state)
        return state.with_graph(graph)


def fuse_one(graph: Graph, name: str, state: Lowering) -> Graph:
    """Replace every match of fused op `name`."""
    pattern = pattern_of(name)
    last = pattern.results[-1].op
    anchor = 0
    while anchor < len(graph):
        node = graph[anchor]
        match = find(pattern, graph, node) if node.op == last else None
        if match is not None and _runnable(name, match, graph, state):
            label = node.name
            graph = apply_match(graph, name, match)
            anchor = next((n.id for n in graph if n.name == label), anchor)
        anchor += 1
    return graph


def _runnable(name: str, match: Match, graph: Graph, state: Lowering) -> bool:
    """Whether the backend of the matched nodes has a kernel for the fused op on these types."""
    spec = FUSED[name]
    backend: Backend = state.backends[graph[match.results[-1]].backend or ""]
    operands = [graph[match.operands[o.name]].type for o in spec.operands if o.name in match.operands]
    attrs = attrs_from_json(spec, dict(match.attrs))
    return backend.supports(name, attrs, spec.check(attrs, operands), operands) is None


def apply_match(graph: Graph, name: str, match: Match) -> Graph:
    """The graph with one match replaced; several results become parts of the fused node."""
    spec, rewriter = OPS[name], Rewriter(graph)
    anchor = graph[match.results[-1]]
    sources = tuple(match.operands[o.name] for o in spec.operands if o.name in match.operands)
    for inner in match.inner:
        rewriter.drop(inner)
    attrs = {f.name: match.attrs[f.name] for f in fields(spec.Attrs)}
    if len(match.results) == 1:
        fused = rewriter.add(name, sources, attrs, anchor, f"{anchor.name}.{name}")
        rewriter.replace(anchor.id, fused.id)
        return _named(rewriter.finish(), fused.name, anchor.name)
    fused = rewriter.add(name, sources, attrs, anchor, f"{anchor.name}.{name}")
    return _with_parts(rewriter, graph, match, fused)


def _with_parts(rewriter: Rewriter, graph: Graph, match: Match, fused: Node) -> Graph:
    spec = FUSED[fused.op]
    widths = spec.parts(fused.attrs, *(graph[s].type for s in fused.sources))
    start, renames = 0, dict[str, str]()
    for result, width in zip(match.results, widths, strict=True):
        window: dict[str, Any] = {"starts": (0, start), "shape": (fused.type.shape[0], width)}
        part = rewriter.add("view", (fused.id,), window, graph[result], f"{graph[result].name}.part")
        rewriter.replace(result, part.id)
        renames[part.name] = graph[result].name
        start += width
    result = rewriter.finish()
    for new, old in renames.items():
        result = _named(result, new, old)
    return result


def _named(graph: Graph, current: str, name: str) -> Graph:
    """`current` takes over the freed name of the value that it replaces, so that names stay stable."""
    return graph.rewrite(lambda n: replace(n, name=name) if n.name == current else n)
