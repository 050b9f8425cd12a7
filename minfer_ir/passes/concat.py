"""Sibling matmuls over equal formats become one over stacked weights, cut back into parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minfer_ir.graph import Graph, Node
from minfer_ir.passes.rewriter import Rewriter
from minfer_ir.runtime.backend import Backend

CONCAT_SWITCH = "concat_matmul"


def concat_matmuls(graph: Graph, backends: Mapping[str, Backend]) -> Graph:
    """Merge every group of matmuls that read one value in one block; mixed formats stay apart."""
    groups = _groups(graph, backends)
    if not groups:
        return graph
    rewriter = Rewriter(graph)
    for siblings in groups:
        _merge(rewriter, siblings)
    return rewriter.finish()


def _groups(graph: Graph, backends: Mapping[str, Backend]) -> list[list[Node]]:
    """The matmuls to merge, in order."""
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in graph:
        if node.op != "matmul" or graph[node.sources[1]].op != "weight" or node.backend is None:
            continue
        weight = graph[node.sources[1]]
        if backends[node.backend].capabilities.weight_concat and len(graph.users[weight.id]) == 1:
            key = (node.sources[0], node.backend, node.block, weight.type.dtype.name, weight.attrs.version)
            found.setdefault(key, []).append(node)
    return [nodes for nodes in found.values() if len(nodes) > 1]


def _merge(rewriter: Rewriter, siblings: Sequence[Node]) -> None:
    first, graph = siblings[0], rewriter.graph
    weights = [graph[n.sources[1]] for n in siblings]
    like = weights[0].attrs
    attrs = {
        "keys": tuple(w.attrs.key for w in weights),
        "sizes": tuple(w.type.shape[0] for w in weights),
        "width": like.shape[1],
        "dtype": like.dtype,
        "version": like.version,
    }
    stacked = rewriter.add("weight_concat", (), attrs, weights[0], "+".join(_short(weights)))
    product = rewriter.add("matmul", (first.sources[0], stacked.id), {}, first, "+".join(_short(siblings)))
    start = 0
    for node, weight in zip(siblings, weights, strict=True):
        window = {"starts": (0, start), "shape": node.type.shape}
        part = rewriter.add("view", (product.id,), window, first, f"{node.name}.part")
        start += node.type.shape[1]
        rewriter.substitute(node.id, part.id)
        rewriter.drop(weight.id)


def _short(siblings: Sequence[Node]) -> list[str]:
    """The siblings' names; the block prefix is written once."""
    first, *rest = (n.name for n in siblings)
    prefix = f"blk.{siblings[0].block}."
    return [first, *(name.removeprefix(prefix) for name in rest)]
