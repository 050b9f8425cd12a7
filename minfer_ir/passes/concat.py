"""Sibling matmuls over equal formats become one over stacked weights, cut back into parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from minfer_ir.graph import Graph, Node
from minfer_ir.passes.rewriter import Rewriter
from minfer_ir.runtime.backend import Backend

CONCAT_SWITCH = "concat_matmul"


def concat_matmuls(graph: Graph, backends: Mapping[str, Backend]) -> Graph:
    """Merge every group of matmuls that read one value in one block; mixed formats stay apart."""
    for group in _groups(graph, backends):
        graph = _merge(graph, [graph.by_name[name] for name in group])
    return graph


def _groups(graph: Graph, backends: Mapping[str, Backend]) -> list[list[str]]:
    """Names of the matmuls to merge, in order."""
    found: dict[tuple[object, ...], list[str]] = {}
    for node in graph:
        if node.op != "matmul" or graph[node.sources[1]].op != "weight" or node.backend is None:
            continue
        weight = graph[node.sources[1]]
        if backends[node.backend].capabilities.weight_concat and len(graph.users[weight.id]) == 1:
            key = (node.sources[0], node.backend, node.block, weight.type.dtype.name, weight.attrs.version)
            found.setdefault(key, []).append(node.name)
    return [names for names in found.values() if len(names) > 1]


def _merge(graph: Graph, siblings: Sequence[Node]) -> Graph:
    rewriter = Rewriter(graph)
    weights = [graph[n.sources[1]] for n in siblings]
    first = weights[0].attrs
    attrs = {
        "keys": tuple(w.attrs.key for w in weights),
        "sizes": tuple(w.type.shape[0] for w in weights),
        "width": first.shape[1],
        "dtype": first.dtype,
        "version": first.version,
    }
    stacked = rewriter.add("weight_concat", (), attrs, weights[0], "+".join(w.name for w in weights))
    source = siblings[0].sources[0]
    product = rewriter.add("matmul", (source, stacked.id), {}, siblings[0], "+".join(_short(siblings)))
    start, renames = 0, dict[str, str]()
    for node, weight in zip(siblings, weights, strict=True):
        window = {"starts": (0, start), "shape": node.type.shape}
        part = rewriter.add("view", (product.id,), window, node, f"{node.name}.part")
        renames[part.name] = node.name
        start += node.type.shape[1]
        rewriter.replace(node.id, part.id)
        rewriter.drop(weight.id)
    merged = rewriter.finish()
    return merged.rewrite(lambda n: replace(n, name=renames.get(n.name, n.name)))


def _short(siblings: Sequence[Node]) -> list[str]:
    """The siblings' names; the block prefix is written once."""
    first, *rest = (n.name for n in siblings)
    prefix = first.rsplit(".", 1)[0] + "."
    return [first, *(name.removeprefix(prefix) for name in rest)]
