"""Each pass does what it says, and no pass changes a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lowering_backends import IntegerBackend, Lacking
from toy_model import params, step_inputs, toy_model

from minfer_ir.builder import GraphBuilder
from minfer_ir.evaluate import evaluate
from minfer_ir.graph import Graph
from minfer_ir.params import DevicePlan
from minfer_ir.passes.assign import Assign
from minfer_ir.passes.base import Lowering, LoweringError, Pass, run_passes
from minfer_ir.passes.canonicalize import Canonicalize
from minfer_ir.passes.clean import Cse, Dce
from minfer_ir.passes.fuse import FUSIONS, Fuse
from minfer_ir.passes.legalize import Legalize
from minfer_ir.passes.split import make_splits
from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.testing.strategies import graphs
from minfer_ir.testing.values import draw_feed

ALL: list[Pass] = [Canonicalize(), Assign(), Fuse(), Legalize(), Fuse("fuse-legal"), Cse(), Dce()]


def state(graph: Graph, backends: Iterable[Backend], **changes: object) -> Lowering:
    named = {b.name: b for b in backends}
    return Lowering(params(devices=DevicePlan(tuple(named)), **changes), named, graph)


def through(graph: Graph, passes: list[Pass], *backends: Backend, **changes: object) -> Graph:
    return run_passes(passes, state(graph, backends or (NumpyBackend(),), **changes)).graph


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graph=graphs(), seed=st.integers(0, 2**32 - 1))
def test_the_passes_change_no_bit_of_any_output(graph: Graph, seed: int) -> None:
    feed = draw_feed(np.random.default_rng(seed), graph)
    expected_regions, regions = feed.fresh_regions(), feed.fresh_regions()
    expected = evaluate(graph, feed.inputs, feed.weights, expected_regions)
    actual = evaluate(through(graph, ALL), feed.inputs, feed.weights, regions)
    for e, a in zip(expected, actual, strict=True):
        assert np.array_equal(e, a, equal_nan=True)
    for key in expected_regions:
        assert np.array_equal(expected_regions[key], regions[key], equal_nan=True)


def toy_logits(graph: Graph) -> np.ndarray:
    inputs = {
        k: v for k, v in step_inputs([3, 1, 4, 1, 5]).items() if k in {n.attrs.key for n in graph if n.op == "input"}
    }
    return evaluate(graph, inputs, toy_model().weights)[0]


NEEDS = {
    "swiglu_quantize": ("swiglu",),
    "matmul_swiglu": ("swiglu",),
    "matmul_swiglu_quantize": ("swiglu", "matmul_swiglu"),
    "matmul_rope_kv_store": ("rope_kv_store",),
}
"""Fusions of what other fusions made."""
OF_OTHER_MODELS = [f for f in FUSIONS if "norm_rope" in f or f.startswith("matmul_add_")]
"""Fusions of biases and norms of heads, which the toy model lacks."""


def test_every_fusion_leaves_the_toy_model_as_it_is_and_can_be_switched_off() -> None:
    build = toy_model().graph(params())
    reference = toy_logits(through(build, ALL, IntegerBackend(), fusions_off=frozenset(FUSIONS)))
    plain = ops(through(build, ALL, IntegerBackend(), fusions_off=frozenset(FUSIONS)))
    for switch in (s for s in FUSIONS if s not in OF_OTHER_MODELS):
        op = "weight_concat" if switch == "concat_matmul" else switch
        needed = {switch, *NEEDS.get(switch, ())}
        fused = through(build, ALL, IntegerBackend(), fusions_off=frozenset(FUSIONS) - needed)
        assert op in ops(fused) and op not in plain, switch
        assert np.array_equal(toy_logits(fused), reference), switch


def test_siblings_of_one_format_are_stacked_and_others_stay_apart() -> None:
    off = frozenset(FUSIONS) - {"concat_matmul"}
    graph = through(toy_model().graph(params()), [Assign(), Fuse()], fusions_off=off)
    stacked = [n.attrs.keys for n in graph if n.op == "weight_concat" and n.block == 0]
    assert stacked == [
        ("blk.0.attn_q.weight", "blk.0.attn_k.weight"),
        ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"),
    ]


def test_a_backend_without_the_kernel_does_not_get_the_fused_op() -> None:
    build = toy_model().graph(params())
    assert {"matmul_swiglu", "matmul_add"} <= set(ops(through(build, ALL, Lacking("full"))))
    lacking = through(build, ALL, Lacking("lacking", "matmul_swiglu", "matmul_add"))
    assert not {"matmul_swiglu", "matmul_add"} & set(ops(lacking))
    assert {"swiglu", "add_rms_norm"} <= set(ops(lacking))


def test_a_composition_that_the_fused_op_cannot_take_stays() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(2, 8), dtype="f32", rows="token")
    bias, weight = (b.weight(key=k, shape=(8,), dtype="F32") for k in ("bias", "weight"))
    b.output(b.rms_norm(b.add(x, bias), weight, eps=1e-5))
    assert ops(through(b.build(), [Assign(), Fuse()])) == ["input", "weight", "weight", "add", "rms_norm"]


def test_a_sum_that_two_norms_read_is_fused_with_one_of_them() -> None:
    b = GraphBuilder()
    x, y = (b.input(key=k, shape=(2, 8), dtype="f32", rows="token") for k in "xy")
    first, second = (b.weight(key=k, shape=(8,), dtype="F32") for k in ("first", "second"))
    total = b.add(x, y)
    b.output(b.add(b.rms_norm(total, first, eps=1e-5), b.rms_norm(total, second, eps=1e-5)))
    fused = ops(through(b.build(), [Assign(), Fuse()]))
    assert (fused.count("add_rms_norm"), fused.count("rms_norm")) == (1, 1)


def test_a_weight_that_others_read_is_not_stacked() -> None:
    b = GraphBuilder()
    x, y = (b.input(key=k, shape=(2, 32), dtype="f32", rows="token") for k in "xy")
    shared, own = (b.weight(key=k, shape=(8, 32), dtype="Q4_0") for k in ("shared", "own"))
    b.output(b.add(b.matmul(x, shared), b.matmul(x, own)))
    b.output(b.matmul(y, shared))
    assert "weight_concat" not in ops(through(b.build(), [Assign(), Fuse()]))


def test_a_single_head_of_strided_rows_needs_no_copy() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(4, 24), dtype="f32", rows="token")
    positions = b.input(key="positions", shape=(4,), dtype="i32", rows="token", limit=32)
    _, part = b.split_parts(x, (16, 8))
    head = b.reshape(part, shape=(4, 1, 8))
    b.output(b.rope(head, positions, pairs="neox", dims=8, base=1e4, max_positions=32))
    assert "contiguous" not in ops(through(b.build(), [Assign(), Legalize()], IntegerBackend()))


def test_a_value_times_itself_is_no_gate() -> None:
    b = GraphBuilder()
    activated = b.silu(b.input(key="x", shape=(2, 8), dtype="f32", rows="token"))
    b.output(b.mul(activated, activated))
    assert ops(through(b.build(), [Assign(), Fuse()])) == ["input", "silu", "mul"]


def test_dead_readers_decide_nothing() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(2, 8), dtype="f32", rows="token")
    b.rms_norm(b.reshape(x, shape=(2, 8)), b.weight(key="w", shape=(8,), dtype="F32"), eps=1e-5, name="dead")
    b.output(b.silu(x))
    assert ops(through(b.build(), [Canonicalize(), Assign()])) == ["input", "silu"]


def test_names_of_values_survive_fusion() -> None:
    graph = through(toy_model().graph(params()), ALL, IntegerBackend())
    for name in ("blk.0.q_rope", "blk.1.ffn_norm.q8a32", "blk.0.ffn_residual", "logits"):
        assert name in graph.by_name


def test_two_fusions_that_would_wait_for_each_other_are_taken_one_at_a_time() -> None:
    b = GraphBuilder()
    rows = [b.input(key=k, shape=(2, 8), dtype="f32", rows="token") for k in "abcd"]
    weight = b.weight(key="w", shape=(8,), dtype="F32")
    first, second = b.add(rows[0], rows[1]), b.add(rows[2], rows[3])
    # Each norm's sum is also read by a value that the other's sum depends on.
    first_norm = b.rms_norm(b.add(first, b.scale(second, factor=2.0)), weight, eps=1e-5)
    second_norm = b.rms_norm(second, weight, eps=1e-5)
    b.output(b.add(first_norm, second_norm))
    graph = b.build()
    fused = through(graph, [Assign(), Fuse()])
    assert ops(fused).count("add_rms_norm") == 2


def test_one_quantize_serves_every_matmul_that_reads_the_value() -> None:
    off = frozenset({"concat_matmul", "rms_norm_quantize", "matmul_rope", "matmul_rope_kv_store", "matmul_kv_store"})
    graph = through(toy_model().graph(params()), ALL, IntegerBackend(), fusions_off=off)
    quantized = graph.by_name["blk.0.attn_norm.q8a32"]
    assert [graph[u].name for u in graph.users[quantized.id]] == ["blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"]


def test_legalize_copies_operands_that_kernels_cannot_walk() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(2, 3, 4), dtype="f32", rows="token")
    b.output(b.silu(b.permute(x, axes=(0, 2, 1)), name="out"))
    graph = through(b.build(), [Assign(), Legalize()], IntegerBackend())
    (source,) = (graph[s] for s in graph.by_name["out"].sources)
    assert source.op == "contiguous"
    assert "contiguous" not in ops(through(b.build(), [Assign(), Legalize()]))


def test_canonical_form_has_no_idle_views_and_no_chains_of_reshapes() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(2, 12), dtype="f32", rows="token")
    once = b.reshape(b.reshape(x, shape=(2, 3, 4)), shape=(2, 2, 6))
    idle = b.permute(b.view(once, starts=(0, 0, 0), shape=(2, 2, 6)), axes=(0, 1, 2))
    b.output(b.silu(idle))
    assert ops(through(b.build(), [Canonicalize(), Dce()])) == ["input", "reshape", "silu"]


def test_a_permute_that_keeps_the_shape_is_not_idle() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(2, 3, 3), dtype="f32", rows="token")
    b.output(b.silu(b.permute(x, axes=(0, 2, 1))))
    assert ops(through(b.build(), [Canonicalize()])) == ["input", "permute", "silu"]


def test_dead_values_go_and_stores_and_inputs_stay() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(2, 8), dtype="f32", rows="token")
    cells = b.input(key="cells", shape=(2,), dtype="i32", rows="token", limit=4)
    b.input(key="seq_ids", shape=(2,), dtype="i32", rows="token")
    b.silu(x, name="dead")
    b.kv_store(b.kv(key="k.0", cells=4, width=8, dtype="f32"), x, cells, name="store")
    b.output(b.scale(x, factor=2.0))
    names = set(through(b.build(), [Dce()]).by_name)
    assert "dead" not in names
    assert {"store", "seq_ids", "cells", "k.0"} <= names


def test_reads_of_two_versions_of_a_region_are_not_merged() -> None:
    b = GraphBuilder()
    q = b.input(key="q", shape=(1, 2, 4), dtype="f32", rows="token")
    row = b.input(key="row", shape=(1, 8), dtype="f32", rows="token")
    cells = b.input(key="cells", shape=(1,), dtype="i32", rows="token", limit=4)
    positions = b.input(key="positions", shape=(1,), dtype="i32", rows="token", limit=4)
    window = b.input(key="window", shape=(1, 2), dtype="i32", rows="token", limit=4)
    k, v = (b.kv(key=key, cells=4, width=8, dtype="f32") for key in ("k.0", "v.0"))
    attrs = {"n_kv_heads": 2, "scale": 0.5}
    before = b.attention(q, k, v, positions, window, **attrs)
    again = b.attention(q, k, v, positions, window, **attrs)
    after = b.attention(q, b.kv_store(k, row, cells), v, positions, window, **attrs)
    b.output(b.add(b.add(before, again), after))
    assert ops(through(b.build(), [Cse()])).count("attention") == 2


def test_assignment_prefers_the_first_backend_that_can() -> None:
    graph = through(toy_model().graph(params()), [Assign()], Lacking("first", "rope", "silu"), Lacking("second"))
    assert {n.backend for n in graph if n.op in ("rope", "silu")} == {"second"}
    assert {n.backend for n in graph if n.op in ("matmul", "attention")} == {"first"}


def test_everything_on_a_kv_region_goes_to_one_backend() -> None:
    graph = through(toy_model().graph(params()), [Assign()], Lacking("first", "attention"), Lacking("second"))
    assert {n.backend for n in graph if n.op in ("kv_store", "attention")} == {"second"}


def test_what_nobody_can_run_is_refused_with_op_types_and_reason() -> None:
    build = toy_model().graph(params())
    with pytest.raises(LoweringError, match=r"blk\.0\.q_rope: rope\(f32\[8, 4, 16\], i32\[8\]\): no kernel for rope"):
        through(build, [Assign()], Lacking("only", "rope"))


def test_a_pinned_block_goes_where_it_is_pinned_or_is_refused() -> None:
    build = toy_model().graph(params())
    backends: dict[str, Backend] = {"a": Lacking("a"), "b": Lacking("b"), "c": Lacking("c", "silu")}
    pinned = Lowering(params(devices=DevicePlan(("a",), ((1, "b"),))), backends, build)
    graph = Assign().run(pinned).graph
    assert {n.backend for n in graph if n.block == 1 and not n.is_leaf()} == {"b"}
    assert {n.backend for n in graph if n.block == 0 and not n.is_leaf()} == {"a"}
    with pytest.raises(LoweringError, match=r"c: .*no kernel for silu"):
        Assign().run(replace(pinned, params=params(devices=DevicePlan(("a",), ((1, "c"),)))))


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(LoweringError, match="unknown backend gpu; have: numpy"):
        Assign().run(
            Lowering(params(devices=DevicePlan(("gpu",))), {"numpy": NumpyBackend()}, toy_model().graph(params()))
        )


def test_splits_cut_where_the_backend_changes_and_name_what_crosses() -> None:
    backends: dict[str, Backend] = {"a": Lacking("a"), "b": Lacking("b")}
    start = Lowering(params(devices=DevicePlan(("a",), ((1, "b"),))), backends, toy_model().graph(params()))
    graph = Assign().run(start).graph
    splits = make_splits(graph)
    assert [s.backend for s in splits] == ["a", "b", "a"]
    assert [[graph[r].name for r in s.reads] for s in splits] == [[], ["blk.0.ffn_residual"], ["blk.1.ffn_residual"]]
    assert [n for s in splits for n in s.nodes] == [n.id for n in graph if not n.is_leaf()]
