"""The DOT of a graph: a small reader of the language checks what a renderer would draw."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from ir_builders import rows_input, small_llama

from minfer_ir.builder import GraphBuilder
from minfer_ir.dot import export_dot
from minfer_ir.graph import Graph
from minfer_ir.testing.strategies import graphs

NODE = re.compile(r"\s*(n\d+(?:_\d+_\d+)?) \[(.*)\];")
EDGE = re.compile(r"\s*(n\d+(?:_\d+_\d+)?) -> (n\d+)(?: \[(.*)\])?;")


class Picture:
    """Nodes with their attributes, edges, and which cluster each node stands in."""

    def __init__(self, dot: str) -> None:
        self.nodes: dict[str, str] = {}
        self.edges: list[tuple[str, str, str]] = []
        self.clusters: dict[str, str | None] = {}
        cluster: str | None = None
        assert dot.startswith("digraph minfer {\n") and dot.endswith("\n}\n")
        assert dot.count("{") == dot.count("}")
        for line in dot.splitlines():
            if found := re.match(r"\s*subgraph cluster_(\d+) ", line):
                cluster = found[1]
            elif line == "  }":
                cluster = None
            elif edge := EDGE.match(line):
                self.edges.append((edge[1], edge[2], edge[3] or ""))
            elif node := NODE.match(line):
                assert node[1] not in self.nodes, f"{node[1]} is drawn twice"
                self.nodes[node[1]], self.clusters[node[1]] = node[2], cluster


def origin(name: str) -> int:
    return int(name[1:].split("_", maxsplit=1)[0])


@settings(max_examples=40, deadline=None)
@given(graphs(max_ops=10))
def test_every_read_is_an_edge_between_drawn_nodes(graph: Graph) -> None:
    picture = Picture(export_dot(graph))
    assert all(a in picture.nodes and b in picture.nodes for a, b, _ in picture.edges)
    drawn = sorted((origin(a), origin(b)) for a, b, _ in picture.edges)
    assert drawn == sorted((s, n.id) for n in graph for s in n.sources)
    unread = {n.id for n in graph if n.is_leaf() and len(graph.users[n.id]) > 1 and n.id not in graph.outputs}
    assert {origin(n) for n in picture.nodes} == {n.id for n in graph}
    assert {int(n[1:]) for n in picture.nodes if "_" not in n} == {n.id for n in graph} - unread
    for name, cluster in picture.clusters.items():
        if "_" not in name:
            block = graph[origin(name)].block
            assert cluster == (None if block is None else str(block))


def test_one_block_is_drawn_with_what_it_reads_and_feeds() -> None:
    graph = small_llama(blocks=3)
    picture = Picture(export_dot(graph, block=1))
    inside = {n.id for n in graph if n.block == 1}
    assert {origin(n) for n, c in picture.clusters.items() if c == "1" and "_" not in n} == inside
    outside = {origin(n) for n, c in picture.clusters.items() if c is None}
    assert {graph[i].name for i in outside} == {"blk.0.out", "blk.2.norm", "blk.2.residual"}
    reads = sorted((origin(a), origin(b)) for a, b, style in picture.edges if "dotted" not in style)
    assert reads == sorted((s, n.id) for n in graph if n.block == 1 for s in n.sources)
    assert sum("dotted" in style for _, _, style in picture.edges) == 2


def test_styles_tell_kinds_apart() -> None:
    graph = small_llama()
    picture = Picture(export_dot(graph))

    def style(name: str) -> str:
        return next(text for node, text in picture.nodes.items() if graph[origin(node)].name == name)

    kinds = {style(name).split(", label")[0] for name in ("token_ids", "blk.0.q.weight", "blk.0.k.0", "embed")}
    assert len(kinds) == 4
    assert "dashed" in style("blk.0.reshape") and "dashed" not in style("embed")
    assert "peripheries=2" in style("logits") and "peripheries" not in style("embed")
    views = [text for _, target, text in picture.edges if graph[origin(target)].name == "blk.0.reshape"]
    assert views == ["style=dashed"]


def test_edges_carry_operand_names_only_where_there_are_several() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 1, 2)
    y = b.silu(x)
    b.output(b.swiglu(y, y))
    labels = [text for _, _, text in Picture(export_dot(b.build())).edges]
    assert labels == ["", 'label="gate"', 'label="up"']


def test_a_leaf_that_is_an_output_keeps_one_place() -> None:
    b = GraphBuilder()
    x = b.output(rows_input(b, "x", 1, 2))
    b.output(b.add(b.silu(x), x))
    picture = Picture(export_dot(b.build()))
    assert set(picture.nodes) == {"n0", "n1", "n2"}
    assert "peripheries=2" in picture.nodes["n0"]


def test_names_are_escaped_for_html_labels() -> None:
    b = GraphBuilder()
    b.output(b.silu(rows_input(b, 'a<b>&"c"', 1, 2)))
    text = export_dot(b.build())
    assert "<b>a&lt;b&gt;&amp;&quot;c&quot;</b>" in text


def test_a_block_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="no node belongs to block 7; blocks: 0, 1"):
        export_dot(small_llama(), block=7)
