"""The text of a graph."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from ir_builders import rows_input, small_llama

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph
from minfer_ir.printer import print_graph, print_node
from minfer_ir.testing.strategies import graphs


def test_a_line_shows_operands_attrs_type_rows_and_backend() -> None:
    b = GraphBuilder()
    with b.block(0):
        x = rows_input(b, "x", 8, 576)
        norm = b.rms_norm(x, b.weight(key="blk.0.attn_norm.weight", shape=(576,), dtype="F32"), eps=1e-5, name="norm")
        q = b.matmul(norm, b.weight(key="blk.0.attn_q.weight", shape=(192, 576), dtype="Q4_1"), name="attn_q")
    b.output(q)
    graph = b.build().rewrite(lambda n: replace(n, backend="cpu") if n.op == "matmul" else n)
    assert print_graph(graph).splitlines() == [
        "block 0:",
        "  %0 blk.0.x = input(key=x) : f32[8, 576] rows=token",
        "  %1 blk.0.attn_norm.weight = weight() : F32[576]",
        "  %2 blk.0.norm = rms_norm(%0 blk.0.x, %1 blk.0.attn_norm.weight, eps=1e-05) : f32[8, 576] rows=token",
        "  %3 blk.0.attn_q.weight = weight() : Q4_1[192, 576]",
        "  %4 blk.0.attn_q = matmul(%2 blk.0.norm, %3 blk.0.attn_q.weight) : f32[8, 192] rows=token @cpu -> output",
    ]


def test_attrs_at_their_default_are_left_out_and_nested_ones_are_shown() -> None:
    b = GraphBuilder()
    x, p = rows_input(b, "x", 1, 1, 4), b.input(key="p", shape=(1,), dtype="i32", rows="token", limit=9)
    plain = b.rope(x, p, pairs="neox", dims=4, base=1e4, max_positions=9)
    scaled = b.rope(x, p, pairs="neox", dims=4, base=1e4, max_positions=9, scaling={"kind": "linear", "factor": 2.0})
    graph = Graph((x, p, plain, scaled), ())
    assert "scaling" not in print_node(graph, plain)
    assert "scaling={kind=linear, factor=2.0," in print_node(graph, scaled)
    assert print_node(graph, p) == "%1 p = input(limit=9) : i32[1] rows=token"


def test_a_view_shows_where_it_lies() -> None:
    b = GraphBuilder()
    view = b.view(rows_input(b, "x", 2, 8), starts=(0, 3), shape=(2, 4))
    graph = Graph((b.input(key="x", shape=(2, 8), dtype="f32", rows="token"), view), ())
    assert print_node(graph, view) == (
        "%1 view = view(%0 x, starts=[0, 3], shape=[2, 4]) : f32[2, 4] rows=token view(%0 + 12, strides [32, 4])"
    )


def test_blocks_are_headings_in_execution_order() -> None:
    headings = [line for line in print_graph(small_llama()).splitlines() if line.endswith(":")]
    assert headings == ["block 0:", "block 1:", "no block:"]


def test_annotations_are_a_column() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 1, 2)
    b.output(b.silu(b.silu(x, name="a_longer_name")))
    lines = print_graph(b.build(), {1: "buffer 0", 2: "buffer 1"}).splitlines()
    assert lines[0].endswith("rows=token")
    columns = [line.index(" | ") for line in lines[1:]]
    assert columns[0] == columns[1]
    assert [line.split(" | ")[1] for line in lines[1:]] == ["buffer 0", "buffer 1"]


@settings(max_examples=30, deadline=None)
@given(graphs(max_ops=10))
def test_every_node_is_one_line_that_names_its_sources(graph: Graph) -> None:
    lines = [line for line in print_graph(graph).splitlines() if line.lstrip().startswith("%")]
    assert [int(re.match(r"\s*%(\d+) ", line)[1]) for line in lines] == list(range(len(graph)))  # type: ignore[index]
    for node, line in zip(graph, lines, strict=True):
        arguments = line.split(" = ", 1)[1]
        assert [int(s) for s in re.findall(r"%(\d+) ", arguments.split(" view(")[0])] == list(node.sources)
        assert line.endswith(" -> output") == (node.id in graph.outputs)
        assert f" : {node.type}" in line
