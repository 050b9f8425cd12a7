"""Graphs: order, cycles, verification, in-place stores."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_builders import floats, rows_input, run, small_llama

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph, GraphError, Node, ViewAlias, storage_source
from minfer_ir.opspec import NoAttrs
from minfer_ir.testing.strategies import graphs


def chain(n: int = 3) -> Graph:
    b = GraphBuilder()
    x = rows_input(b, "x", 2, 4)
    for i in range(n):
        x = b.silu(x, name=f"s{i}")
    b.output(x)
    return b.build()


def with_node(graph: Graph, index: int, **changes: object) -> Graph:
    return graph.rewrite(lambda n: replace(n, **changes) if n.id == index else n)


def test_a_repeated_source_is_one_edge_read_twice() -> None:
    b = GraphBuilder()
    x = rows_input(b, "x", 2, 4)
    total = b.output(b.add(x, x))
    graph = b.build()
    assert graph.users == {x.id: (total.id,), total.id: ()}
    assert [slot for slot, _ in total.operands(graph)] == ["x", "y"]
    values = floats(1, 2, 4)
    assert np.array_equal(run(graph, x=values)[0], values + values)
    assert Graph.ordered(reversed(graph.nodes), graph.outputs) == graph


def test_operands_are_found_by_name() -> None:
    graph = small_llama()
    attention = next(n for n in graph if n.op == "attention")
    assert attention.operand(graph, "window").name == "window"
    with pytest.raises(KeyError, match="has no operand 'mask'"):
        attention.operand(graph, "mask")


def test_a_cycle_is_named_by_its_nodes() -> None:
    graph = chain(4)
    looped = [replace(n, sources=(4,)) if n.name == "s1" else n for n in graph]
    with pytest.raises(GraphError) as caught:
        Graph.ordered(looped, graph.outputs)
    text = str(caught.value).removeprefix("the graph has a cycle: ")
    names = text.split(" -> ")
    assert names[0] == names[-1]
    assert set(names) == {"s1", "s2", "s3"}
    order = ["s1", "s2", "s3"]
    assert all(order[(order.index(a) + 1) % 3] == b for a, b in pairwise(names))


def test_a_node_that_reads_itself_is_a_cycle() -> None:
    graph = chain(1)
    with pytest.raises(GraphError, match="cycle: s0 -> s0"):
        Graph.ordered([graph[0], replace(graph[1], sources=(1,))], [1])


@settings(max_examples=40, deadline=None)
@given(graphs(max_ops=8, without=("attention", "kv_store")), st.randoms())
def test_ordering_a_shuffled_graph_keeps_its_meaning_and_is_stable(graph: Graph, rng: random.Random) -> None:
    assert Graph.ordered(graph.nodes, graph.outputs) == graph
    shuffled = list(graph.nodes)
    rng.shuffle(shuffled)
    again = Graph.ordered(shuffled, graph.outputs)
    assert [again[o].name for o in again.outputs] == [graph[o].name for o in graph.outputs]
    assert {n.name: [again[s].name for s in n.sources] for n in again} == {
        n.name: [graph[s].name for s in n.sources] for n in graph
    }
    assert all(s < n.id for n in again for s in n.sources)
    # Of the nodes that are ready, the one listed first is next.
    place = {n.name: i for i, n in enumerate(shuffled)}
    done: set[str] = set()
    for node in again:
        ready = [n for n in shuffled if n.name not in done and all(graph[s].name in done for s in n.sources)]
        assert place[node.name] == min(place[n.name] for n in ready)
        done.add(node.name)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Graph(chain().nodes[::-1], (0,)), "%3 s2 stands at index 0"),
        (with_node(chain(), 2, name="s0"), "two nodes are named 's0'"),
        (with_node(chain(), 1, sources=(2,)), r"%1 s0 reads \[2\], which don't come before it"),
        (with_node(chain(), 1, sources=(-1,)), r"%1 s0 reads \[-1\]"),
        (with_node(chain(), 1, sources=(0, 0)), "%1 s0: silu takes 1 to 1 operands, got 2"),
        (with_node(chain(), 1, op="nope"), "%1 s0: unknown op 'nope'"),
        (with_node(chain(), 1, attrs=None), r"%1 s0: silu takes attrs NoAttrs, got None"),
        (with_node(chain(), 3, type=chain()[0].type.__class__((2, 5), chain()[0].type.dtype, "token")),
         r"%3 s2 is declared f32\[2, 5\] rows=token, its op gives f32\[2, 4\]"),
        (with_node(chain(), 1, view=ViewAlias(0, 0, (16, 4))), "%1 s0 has view .* its op gives None"),
        (Graph(chain().nodes, (9,)), r"outputs \[9\] aren't nodes; the graph has 4"),
        (Graph(chain().nodes, (-1,)), r"outputs \[-1\] aren't nodes"),
    ],
)  # fmt: skip
def test_malformed_graphs_are_refused_by_name(graph: Graph, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        graph.verify()


def test_ordered_refuses_what_is_not_there() -> None:
    nodes = chain().nodes
    with pytest.raises(GraphError, match=r"%2 s1 reads %1, which isn't in the graph"):
        Graph.ordered([nodes[0], nodes[2]], [2])
    with pytest.raises(GraphError, match="two nodes have the same id"):
        Graph.ordered([nodes[0], nodes[0]], [0])
    with pytest.raises(GraphError, match=r"outputs \[7\] aren't nodes"):
        Graph.ordered(nodes, [7])


def test_a_view_alias_must_be_the_one_its_op_gives() -> None:
    b = GraphBuilder()
    b.output(b.view(rows_input(b, "x", 2, 4), starts=(0, 1), shape=(2, 2)))
    graph = b.build()
    assert graph[1].view == ViewAlias(0, 4, (16, 4))
    for wrong in (None, ViewAlias(0, 8, (16, 4)), ViewAlias(0, 4, (8, 4))):
        with pytest.raises(GraphError, match="has view"):
            with_node(graph, 1, view=wrong).verify()


def test_a_view_that_needs_a_copy_first_is_refused() -> None:
    b = GraphBuilder()
    x = b.permute(b.reshape(rows_input(b, "x", 2, 12), shape=(2, 3, 4)), axes=(0, 2, 1))
    b.output(b.reshape(x, shape=(2, 12)))
    graph = b.build()
    uncopied = [replace(n, sources=(x.id,), view=None) if n.name == "reshape.2" else n for n in graph]
    uncopied = [n for n in uncopied if n.op != "contiguous"]
    with pytest.raises(GraphError, match=r"can't view %2 permute with strides \(48, 4, 16\): it needs a"):
        Graph.ordered(uncopied, [graph.outputs[0]]).verify()


def stores() -> tuple[GraphBuilder, Node, Node, Node]:
    b = GraphBuilder()
    region = b.kv(key="k", cells=8, width=4, dtype="f32")
    values = rows_input(b, "x", 2, 4)
    cells = b.input(key="cells", shape=(2,), dtype="i32", rows="token")
    return b, region, values, cells


def test_a_store_owns_the_regions_storage_and_orders_later_reads() -> None:
    b, region, values, cells = stores()
    first = b.kv_store(region, values, cells, name="first")
    second = b.kv_store(first, values, cells, name="second")
    window = b.view(second, starts=(2, 0), shape=(3, 4), name="window")
    b.output(window)
    graph = b.build()
    assert [graph.owner(n.id) for n in (region, first, second, window)] == [region.id] * 4
    assert storage_source(graph[second.id]) == first.id
    assert storage_source(graph[values.id]) is None


@pytest.mark.parametrize("stale", ["region", "first", "view"])
def test_reading_a_version_that_was_overwritten_is_refused(stale: str) -> None:
    b, region, values, cells = stores()
    first = b.kv_store(region, values, cells, name="first")
    view = b.view(first, starts=(0, 0), shape=(2, 4), name="view")
    b.kv_store(first, values, cells, name="second")
    old = {"region": region, "first": first, "view": view}[stale]
    reader = b.view(old, starts=(0, 0), shape=(1, 4), name="late")
    b.output(b.contiguous(reader, name="copy") if stale == "view" else reader)
    with pytest.raises(GraphError, match=rf"late reads %{old.id} .* after %{first.id + 2} second wrote it"):
        b.build()


@pytest.mark.parametrize("through_view", [False, True])
def test_ordering_puts_the_readers_of_a_version_before_the_store_that_overwrites_it(through_view: bool) -> None:
    b, region, values, cells = stores()
    first = b.kv_store(region, values, cells, name="first")
    window = b.view(first, starts=(0, 0), shape=(2, 4), name="window")
    early = b.contiguous(window if through_view else first, name="early")
    second = b.kv_store(first, values, cells, name="second")
    b.output(early)
    b.output(b.contiguous(second, name="late"))
    graph = b.build()
    for seed in range(20):
        shuffled = list(graph.nodes)
        random.Random(seed).shuffle(shuffled)
        names = [n.name for n in Graph.ordered(shuffled, graph.outputs).verify()]
        assert names.index("first") < names.index("early") < names.index("second") < names.index("late")


def test_a_read_that_needs_both_sides_of_a_store_is_a_cycle() -> None:
    b, region, values, cells = stores()
    stored = b.kv_store(region, values, cells, name="stored")
    both = b.attention(
        b.input(key="q", shape=(2, 1, 4), dtype="f32", rows="token"), region, stored,
        b.input(key="p", shape=(2,), dtype="i32", rows="token"), b.input(key="w", shape=(1,), dtype="i32"),
        n_kv_heads=1, scale=1.0, name="both")  # fmt: skip
    with pytest.raises(GraphError, match=r"cycle: (both -> stored -> both|stored -> both -> stored)"):
        Graph.ordered([*b._nodes], [both.id])


def test_storing_twice_into_one_version_is_refused() -> None:
    b, region, values, cells = stores()
    b.output(b.kv_store(region, values, cells, name="first"))
    b.kv_store(region, values, cells, name="second")
    with pytest.raises(GraphError, match=r"second reads %0 k after .* first wrote it"):
        b.build()


def test_a_view_of_the_newest_version_may_be_read_after_the_store() -> None:
    b, region, values, cells = stores()
    early = b.view(region, starts=(0, 0), shape=(2, 4))
    b.output(b.contiguous(early, name="before"))
    newest = b.kv_store(region, values, cells)
    view = b.view(newest, starts=(0, 0), shape=(2, 4), name="after")
    b.output(b.contiguous(view, name="copy"))
    x = floats(1, 2, 4)
    before, after = run(b.build(), x=x, cells=np.array([1, 0], np.int32))
    assert np.array_equal(before, np.zeros((2, 4), np.float32))
    assert np.array_equal(after, x[::-1])


def test_verify_reports_the_node_at_fault() -> None:
    with pytest.raises(GraphError) as caught:
        with_node(chain(), 2, attrs=3).verify()
    assert caught.value.node is not None and caught.value.node.name == "s1"


def test_graphs_compare_by_nodes_and_outputs() -> None:
    assert chain() == chain()
    assert chain() != Graph(chain().nodes, (2,))
    assert chain() != with_node(chain(), 1, backend="cpu")
    assert chain()[1].attrs == NoAttrs()
