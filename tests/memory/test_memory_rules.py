"""Single rules of the plan, each on the smallest graph that shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_graphs import make_splits

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import F32, I32
from minfer_ir.formats import format_named
from minfer_ir.graph import Graph, Node
from minfer_ir.memory import Copy, Interval, MemoryPlan, PlanError, plan_memory
from minfer_ir.memory.inplace import Resident, may_take_over
from minfer_ir.memory.plan import _Buffers
from minfer_ir.memory.window import Window
from minfer_ir.runtime.backend import Split
from minfer_ir.types import TensorType


def start(width: int = 8, rows: int = 3) -> tuple[GraphBuilder, Node]:
    b = GraphBuilder()
    return b, b.input(key="x", shape=(rows, width), dtype=F32, rows="token")


def fresh(b: GraphBuilder, x: Node, width: int, name: str) -> Node:
    """A computed value `[rows, width]`."""
    weight = b.weight(key=name, shape=(width, x.type.shape[1]), dtype=format_named("F32"))
    return b.matmul(x, weight, name=f"{name}_out")


def on(b: GraphBuilder, *outputs: Node, backends: dict[int, str] | None = None) -> tuple[Graph, list[Split]]:
    for node in outputs:
        b.output(node)
    chosen = backends or {}
    graph = b.build().rewrite(lambda n: n if n.is_leaf() else replace(n, backend=chosen.get(n.id, "a")))
    return graph, make_splits(graph)


def plan(b: GraphBuilder, *outputs: Node, backends: dict[int, str] | None = None, **options: bool) -> MemoryPlan:
    return plan_memory(*on(b, *outputs, backends=backends), **options)


def test_a_chain_stays_in_one_buffer() -> None:
    b, x = start()
    first = fresh(b, x, 8, "w")
    last = b.silu(b.scale(b.silu(first), factor=2.0))
    made = plan(b, last)
    assert set(made.inplace) == {first.id + 1, first.id + 2, first.id + 3}
    assert len({made.placements[i, "a"].buffer for i in range(first.id, last.id + 1)}) == 1
    assert made.intervals[first.id, "a"] == Interval(first.id, last.id + 1)


def test_without_in_place_every_result_has_its_own_bytes() -> None:
    b, x = start()
    last = b.silu(b.silu(fresh(b, x, 8, "w")))
    made = plan(b, last, inplace=False)
    assert not made.inplace
    assert made.placements[last.id, "a"].buffer != made.placements[last.id - 1, "a"].buffer


def test_swiglu_takes_over_the_gate_half() -> None:
    b, x = start()
    both = fresh(b, x, 16, "w")
    gate, up = b.split_parts(both, [8, 8])
    out = b.swiglu(gate, up)
    down = fresh(b, out, 8, "v")
    made = plan(b, down)
    assert made.inplace == {out.id: gate.id}
    taken, gate_at = made.placements[out.id, "a"], made.placements[gate.id, "a"]
    assert (taken.buffer, taken.offset, taken.strides) == (gate_at.buffer, gate_at.offset, (64, 4))
    assert made.intervals[both.id, "a"] == Interval(both.id, down.id)
    assert made.placements[down.id, "a"].buffer != taken.buffer


def test_swiglu_falls_to_the_up_half_when_the_gate_is_read_later() -> None:
    b, x = start()
    gate, up = b.split_parts(fresh(b, x, 16, "w"), [8, 8])
    out = b.swiglu(gate, up)
    made = plan(b, fresh(b, out, 4, "v"), fresh(b, gate, 4, "u"))
    assert made.inplace == {out.id: up.id}


def test_a_view_of_the_result_forbids_a_window_with_gaps() -> None:
    b, x = start()
    gate, up = b.split_parts(fresh(b, x, 16, "w"), [8, 8])
    out = b.swiglu(gate, up)
    heads = b.reshape(out, shape=(3, 2, 4))
    assert plan(b, b.softmax(heads)).inplace == {}


def test_one_row_has_no_gaps_so_views_of_the_result_are_fine() -> None:
    b, x = start(rows=1)
    gate, up = b.split_parts(fresh(b, x, 16, "w"), [8, 8])
    out = b.swiglu(gate, up)
    heads = b.reshape(out, shape=(1, 2, 4))
    made = plan(b, b.softmax(heads))
    assert made.inplace == {out.id: gate.id}
    assert made.placements[out.id, "a"].strides == out.type.strides


def test_a_backend_of_contiguous_rows_takes_no_window_with_gaps() -> None:
    b, x = start()
    gate, up = b.split_parts(fresh(b, x, 16, "w"), [8, 8])
    graph, splits = on(b, fresh(b, b.swiglu(gate, up), 8, "v"))
    assert plan_memory(graph, splits).inplace
    assert not plan_memory(graph, splits, contiguous_only=frozenset({"a"})).inplace


def test_a_window_with_gaps_inside_its_rows_is_not_taken() -> None:
    b, x = start()
    heads = b.reshape(fresh(b, x, 16, "w"), shape=(3, 2, 8))
    turned = b.permute(heads, axes=(0, 2, 1))
    assert plan(b, b.silu(turned)).inplace == {}
    b, x = start()
    part = b.view(b.reshape(fresh(b, x, 16, "w"), shape=(3, 2, 8)), starts=(0, 0, 2), shape=(3, 2, 4))
    assert plan(b, b.silu(part)).inplace == {}


def test_a_transposed_second_reading_of_the_same_bytes_forbids_it() -> None:
    b, x = start(16)
    square = b.reshape(fresh(b, x, 16, "w"), shape=(3, 4, 4))
    turned = b.permute(square, axes=(0, 2, 1))
    out = b.add(square, turned)
    assert plan(b, out).inplace == {}


def test_a_repeated_source_may_be_taken_over() -> None:
    b, x = start()
    first = fresh(b, x, 8, "w")
    out = b.add(first, first)
    assert plan(b, out).inplace == {out.id: first.id}


def test_leaves_and_outputs_are_never_taken_over() -> None:
    b, x = start()
    first = b.silu(x)
    second = b.silu(first)
    assert plan(b, first, second).inplace == {}


def test_an_output_through_a_view_is_never_taken_over() -> None:
    b, x = start()
    first = fresh(b, x, 8, "w")
    window = b.view(first, starts=(0, 0), shape=(3, 4))
    assert plan(b, b.silu(first), window).inplace == {}


def test_inputs_share_no_buffer_with_the_walk() -> None:
    b, x = start()
    late = b.input(key="late", shape=(3, 8), dtype=F32, rows="token")
    node = fresh(b, x, 8, "w")
    for _ in range(4):
        node = b.softmax(node)
    made = plan(b, b.add(node, late))
    inputs = [p.buffer for p in made.placements.values() if p.kind == "input"]
    others = {p.buffer for p in made.placements.values() if p.kind != "input"}
    assert len(set(inputs)) == len(inputs) == 2 and not others & set(inputs)
    assert made.intervals[x.id, "a"] == made.intervals[late.id, "a"] == Interval(-1, late.id + 8)


def test_row_counts_reach_every_backend() -> None:
    b, x = start()
    counts = b.input(key="n_rows", shape=(2,), dtype=I32)
    first = b.silu(x)
    last = b.softmax(first)
    made = plan(b, last, backends={last.id: "b"})
    assert {(counts.id, "a"), (counts.id, "b")} <= set(made.placements)
    assert made.copies == {0: (), 1: (Copy(first.id, "a", "b"),)}
    assert made.placements[first.id, "b"].kind == "staged"
    assert made.homes == {first.id: "a", last.id: "b"}


def test_a_strided_value_is_staged_contiguous_unless_views_look_into_it() -> None:
    b, x = start()
    gate, up = b.split_parts(fresh(b, x, 16, "w"), [8, 8])
    left, right = b.softmax(gate), b.softmax(up)
    window = b.view(up, starts=(0, 2), shape=(3, 4))
    inner = b.softmax(window)
    made = plan(b, left, right, inner, backends={left.id: "b", right.id: "b", window.id: "b", inner.id: "b"})
    assert made.placements[gate.id, "b"].strides == (32, 4)
    assert made.placements[up.id, "b"].strides == (64, 4)
    at = made.placements[window.id, "b"]
    assert (at.kind, at.offset, at.strides) == ("view", 8, (64, 4))


def test_a_larger_idle_buffer_serves_a_smaller_request_and_an_idle_one_grows() -> None:
    b, x = start(512, rows=8)
    big = b.softmax(fresh(b, x, 4096, "w"))
    small = b.softmax(fresh(b, big, 16, "v"))
    made = plan(b, b.softmax(fresh(b, small, 8192, "u")), inplace=False)
    assert sorted(made.sizes("a")) == [16384, 262144, 262144]
    assert [p.largest for p in made.buffers["a"]] == [16384, 262144, 262144]


def test_the_tightest_idle_buffer_is_taken_and_none_is_grown_needlessly() -> None:
    buffers = _Buffers()
    held = [buffers.take(n) for n in (2000, 4000, 16000)]
    for index, nbytes in zip(held, (2000, 4000, 16000), strict=True):
        buffers.give(index, nbytes)
    assert [buffers.take(n) for n in (3600, 9000, 4096)] == [1, 2, 0]
    assert [p.largest for p in buffers.planned()] == [4096, 4000, 16000]
    assert (buffers.used, buffers.peak) == (16696, 22000)


def test_only_a_value_of_the_same_type_is_taken_over() -> None:
    b, x = start()
    out = b.silu(fresh(b, x, 8, "w"))
    same = Window(out.type, 0, out.type.strides)
    reader = [Resident(out.id - 1, same, (out.id,))]
    assert may_take_over(out, same, reader, viewed=False, strided=True)
    for kind in (TensorType((3, 16), F32), TensorType((4, 8), F32), TensorType((3, 8), I32), TensorType((24,), F32)):
        other = Window(kind, 0, kind.strides)
        assert not may_take_over(out, other, [], viewed=False, strided=True)


def test_live_is_the_fullest_moment() -> None:
    b, x = start(8, rows=1)
    first = fresh(b, x, 512, "w")
    second = b.softmax(first)
    made = plan(b, fresh(b, second, 8, "v"))
    assert made.live["a"] == 32 + 2 * 2048
    assert made.pool_bytes("a") == 1024 + 2 * 2048


def store_graph(b: GraphBuilder, x: Node, key: str = "k.0", cells: int = 6) -> Node:
    where = b.input(key="cells", shape=(3,), dtype=I32, rows="token")
    return b.kv_store(b.kv(key=key, cells=cells, width=8, dtype=F32), x, where)


def test_regions_are_exact_and_outside_of_the_pool() -> None:
    b, x = start()
    stored = store_graph(b, fresh(b, x, 8, "w"))
    made = plan(b, stored)
    assert [(str(r), r.nbytes) for r in made.regions["a"]] == [("k.0 f32[6, 8]", 192)]
    assert made.placements[stored.id, "a"].kind == "kv" and made.placements[stored.id, "a"].length == 192
    assert made.region_bytes("a") == 192 and made.pool_bytes("a") == 3 * 1024


@pytest.mark.parametrize("second", ["another size", "another backend"])
def test_a_region_has_one_size_and_one_backend(second: str) -> None:
    b, x = start()
    one = store_graph(b, x)
    two = store_graph(b, x, cells=7) if second == "another size" else b.kv_store(one, x, b._nodes[one.sources[2]])
    backends = {} if second == "another size" else {two.id: "b"}
    graph, splits = on(b, one, two, backends=backends)
    splits = [replace(s, reads=()) for s in splits]
    with pytest.raises(PlanError, match=r"k\.0 f32\[[67], 8\] on . and k\.0 f32\[6, 8\] on a"):
        plan_memory(graph, splits)


def test_a_region_is_never_staged() -> None:
    b, x = start()
    one = store_graph(b, x)
    two = b.kv_store(one, x, b._nodes[one.sources[2]])
    with pytest.raises(PlanError, match=r"kv_store lies in KV region 'k\.0' on a; b can't read it"):
        plan(b, one, two, backends={two.id: "b"})


def test_a_store_needs_a_region() -> None:
    b, x = start()
    where = b.input(key="cells", shape=(3,), dtype=I32, rows="token")
    value = fresh(b, x, 8, "w")
    with pytest.raises(PlanError, match=r"kv_store writes into %\d+ w_out, which isn't a KV region"):
        plan(b, b.kv_store(value, x, where))


def test_splits_that_do_not_fit_the_graph_are_refused() -> None:
    b, x = start()
    first = b.silu(x)
    last = b.softmax(first)
    graph, splits = on(b, last)
    with pytest.raises(PlanError, match="every computed node once and in order, see %2 softmax"):
        plan_memory(graph, [replace(splits[0], nodes=(first.id,))])
    with pytest.raises(PlanError, match="once and in order"):
        plan_memory(graph, [replace(splits[0], nodes=(last.id, first.id))])
    with pytest.raises(PlanError, match="%1 silu is assigned to a, but split 0 runs on b"):
        plan_memory(graph, [replace(splits[0], backend="b")])
    with pytest.raises(PlanError, match="split 0 on a has no nodes"):
        plan_memory(graph, [replace(splits[0], nodes=())])
    with pytest.raises(PlanError, match="split 0 starts at %1 silu and reads %2 softmax after it"):
        plan_memory(graph, [replace(splits[0], reads=(last.id,))])


def test_a_read_that_no_split_lists_is_refused() -> None:
    b, x = start()
    first = b.silu(x)
    last = b.softmax(first)
    graph, splits = on(b, last, backends={last.id: "b"})
    with pytest.raises(PlanError, match="%1 silu was computed on a; a split on b uses it but doesn't list it"):
        plan_memory(graph, [splits[0], replace(splits[1], reads=())])


def test_a_copy_that_comes_after_its_first_reader_is_refused() -> None:
    b, x = start()
    first = b.silu(x)
    early, between, late = b.softmax(first), b.softmax(x), b.softmax(first)
    graph, splits = on(b, early, between, late, backends={early.id: "b", late.id: "b"})
    with pytest.raises(PlanError, match="%1 silu is read at 2 on b, before a split there lists %1 silu"):
        plan_memory(graph, [splits[0], replace(splits[1], reads=()), *splits[2:]])


def test_a_copy_listed_twice_is_made_once_and_kept() -> None:
    b, x = start()
    first = fresh(b, x, 8, "w")
    early, between = b.softmax(first), b.softmax(x)
    late = b.softmax(first)
    graph, splits = on(b, early, between, late, backends={early.id: "b", late.id: "b"})
    made = plan_memory(graph, splits)
    assert [len(made.copies[s.index]) for s in splits] == [0, 1, 0, 0]
    assert made.intervals[first.id, "b"] == Interval(early.id, late.id)


def test_equal_graphs_give_equal_plans() -> None:
    plans = []
    for _ in range(2):
        b, x = start()
        gate, up = b.split_parts(fresh(b, x, 16, "w"), [8, 8])
        plans.append(plan(b, b.softmax(b.swiglu(gate, up)), up))
    assert plans[0] == plans[1]


def test_scratch_is_a_buffer_that_no_value_ever_has() -> None:
    b, x = start()
    graph, splits = on(b, b.silu(fresh(b, fresh(b, x, 32, "w"), 8, "v")))
    without, made = plan_memory(graph, splits), plan_memory(graph, splits, scratch={"a": 5000})
    (scratch,) = made.scratch.values()
    assert (scratch.offset, scratch.length, scratch.kind) == (0, 5000, "scratch")
    assert scratch.buffer not in {place.buffer for place in made.placements.values()}
    assert made.buffers["a"][scratch.buffer].largest == 5000
    assert made.scratch_bytes("a") == 5000 and made.live["a"] == without.live["a"] + 5000
    assert made.pool_bytes("a") == without.pool_bytes("a") + 8192
    assert not without.scratch and plan_memory(graph, splits, scratch={"a": 0}) == without
