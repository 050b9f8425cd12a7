"""Patterns traced from decompositions, and where they match."""

from __future__ import annotations

import pytest

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import FUSED
from minfer_ir.passes.pattern import Match, find, patterns_of


def rows(b: GraphBuilder, key: str) -> Node:
    return b.input(key=key, shape=(4, 8), dtype="f32", rows="token")


def match(name: str, graph: Graph, anchor: str) -> Match | None:
    found = (find(pattern, graph, graph.by_name[anchor]) for pattern in patterns_of(name))
    return next((m for m in found if m is not None), None)


def test_every_fused_op_traces_to_a_pattern_over_its_operands() -> None:
    for name, spec in FUSED.items():
        optional = sum(o.optional for o in spec.operands)
        assert len(patterns_of(name)) == optional + 1
        for pattern in patterns_of(name):
            assert pattern.results[-1].op not in ("view", name)
            assert pattern.spec is spec


def test_swiglu_is_found_in_both_operand_orders() -> None:
    for swapped in (False, True):
        b = GraphBuilder()
        gate, up = rows(b, "gate"), rows(b, "up")
        silu = b.silu(gate)
        b.output(b.mul(up, silu, name="out") if swapped else b.mul(silu, up, name="out"))
        graph = b.build()
        found = match("swiglu", graph, "out")
        assert found is not None
        assert found.operands == {"gate": graph.by_name["gate"].id, "up": graph.by_name["up"].id}


def test_gate_times_its_own_silu_is_one_value_in_two_slots() -> None:
    b = GraphBuilder()
    gate = rows(b, "gate")
    b.output(b.mul(b.silu(gate), gate, name="out"))
    graph = b.build()
    found = match("swiglu", graph, "out")
    assert found is not None
    assert set(found.operands.values()) == {graph.by_name["gate"].id}


def test_an_inner_value_that_somebody_else_reads_is_not_fused_away() -> None:
    b = GraphBuilder()
    gate, up = rows(b, "gate"), rows(b, "up")
    silu = b.silu(gate, name="inner")
    b.output(b.mul(silu, up, name="out"))
    b.output(b.scale(silu, factor=2.0))
    assert match("swiglu", b.build(), "out") is None


def test_an_inner_value_that_is_an_output_is_not_fused_away() -> None:
    b = GraphBuilder()
    gate, up = rows(b, "gate"), rows(b, "up")
    silu = b.output(b.silu(gate))
    b.output(b.mul(silu, up, name="out"))
    assert match("swiglu", b.build(), "out") is None


def test_results_of_a_two_part_pattern_may_have_other_readers() -> None:
    b = GraphBuilder()
    x, y, weight = rows(b, "x"), rows(b, "y"), b.weight(key="w", shape=(8,), dtype="F32")
    total = b.add(x, y, name="total")
    b.output(b.rms_norm(total, weight, eps=1e-5, name="normed"))
    b.output(b.scale(total, factor=2.0))
    found = match("add_rms_norm", b.build(), "normed")
    assert found is not None
    assert found.attrs == {"eps": 1e-5}
    assert found.inner == frozenset()


def test_an_operand_computed_from_a_result_would_close_a_cycle() -> None:
    b = GraphBuilder()
    x, y = (b.input(key=k, shape=(1, 8), dtype="f32") for k in "xy")
    total = b.add(x, y, name="total")
    own = b.reshape(b.silu(total), shape=(8,))
    b.output(b.rms_norm(total, own, eps=1e-5, name="normed"))
    assert match("add_rms_norm", b.build(), "normed") is None


@pytest.mark.parametrize("backends", [("a", "b")])
def test_nodes_on_two_backends_are_not_fused(backends: tuple[str, str]) -> None:
    from dataclasses import replace

    b = GraphBuilder()
    gate, up = rows(b, "gate"), rows(b, "up")
    b.output(b.mul(b.silu(gate), up, name="out"))
    graph = b.build().rewrite(lambda n: replace(n, backend=backends[n.op == "mul"]))
    assert match("swiglu", graph, "out") is None
