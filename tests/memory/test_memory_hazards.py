"""Barriers: by sets of bytes, none is missing where calls may run at once, and none is there for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from planning_graphs import Case, cases
from planning_oracle import addresses

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import U8
from minfer_ir.graph import Graph, Node
from minfer_ir.memory import MemoryPlan, plan_memory
from minfer_ir.memory.hazards import Access, Accesses, OpenCalls, accesses_of, private_bytes
from minfer_ir.memory.window import Window
from minfer_ir.runtime.backend import BufRef, Split
from minfer_ir.types import TensorType

Bytes = set[tuple[object, int]]


def refs(plan: MemoryPlan) -> dict[int, BufRef]:
    """Where values lie, pool buffers from 0 up and regions from 1000 up."""
    return {
        node: BufRef(place.buffer + 1000 * (place.kind == "kv"), place.offset, place.length, place.strides)
        for (node, _), place in plan.placements.items()
    }


def calls(graph: Graph) -> list[Node]:
    return [n for n in graph if n.view is None and not n.is_leaf()]


def barriers(graph: Graph, values: dict[int, BufRef]) -> list[bool]:
    """For each call, whether threads meet before it."""
    open_calls = OpenCalls()
    return [open_calls.must_wait(accesses_of(node, graph, values)) for node in calls(graph)]


def touched(node: Node, plan: MemoryPlan) -> Bytes:
    place = next(p for (n, _), p in plan.placements.items() if n == node.id)
    space = ("kv" if place.kind == "kv" else "pool", place.buffer)
    return {(space, int(at)) for at in addresses(node, place).ravel()}


def race(case: Case, plan: MemoryPlan, waits: Sequence[bool]) -> str | None:
    """Two calls with no barrier between them of which one writes a byte that the other touches, by sets of bytes."""
    graph = case.graph
    open_calls: list[tuple[Node, Bytes, Bytes]] = []
    for node, waiting in zip(calls(graph), waits, strict=True):
        placed = [graph[s] for s in node.sources if any(n == s for n, _ in plan.placements)]
        reads = set[tuple[object, int]]().union(*(touched(s, plan) for s in placed))
        writes = touched(node, plan)
        if waiting:
            open_calls.clear()
        for other, other_reads, other_writes in open_calls:
            if writes & (other_reads | other_writes) or reads & other_writes:
                return f"{node} and {other}"
        open_calls.append((node, reads, writes))
    return None


def windows_are_exact(case: Case, plan: MemoryPlan) -> bool:
    """Whether every value is one stretch of bytes, so that windows overlap only where bytes do."""
    used = {n for node in calls(case.graph) for n in (node.id, *node.sources)}
    return all(
        Window(case.graph[node].type, place.offset, place.strides).is_contiguous
        for (node, _), place in plan.placements.items()
        if node in used
    )


@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_no_race_is_left_and_a_dropped_barrier_is_one(case: Case) -> None:
    plan = plan_memory(case.graph, case.splits)
    waits = barriers(case.graph, refs(plan))
    assert race(case, plan, waits) is None
    if windows_are_exact(case, plan):
        for index in [i for i, waiting in enumerate(waits) if waiting]:
            assert race(case, plan, [w and i != index for i, w in enumerate(waits)]), f"barrier {index} wasn't needed"


@pytest.mark.parametrize("rows", [1, 3])
def test_the_parts_of_one_product_are_worked_on_at_once(rows: int) -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(rows, 64), dtype="f32", rows="token")
    positions = b.input(key="positions", shape=(rows,), dtype="i32", rows="token")
    cells = b.input(key="cells", shape=(rows,), dtype="i32", rows="token")
    product = b.matmul(x, b.weight(key="w", shape=(128, 64), dtype="F32"))
    q, k, v = b.split_parts(product, [64, 32, 32])
    rope = {"pairs": "neox", "dims": 16, "base": 1e4, "max_positions": 8}
    q = b.rope(b.reshape(q, shape=(rows, 4, 16)), positions, name="q_rope", **rope)
    k = b.rope(b.reshape(k, shape=(rows, 2, 16)), positions, name="k_rope", **rope)
    region = b.kv(key="v", cells=8, width=32, dtype="f32")
    b.output(b.kv_store(region, v, cells, name="v_store"))
    b.output(b.add(b.reshape(q, shape=(rows, 64)), x, name="reads_q"))
    b.output(b.silu(k, name="reads_k"))
    graph = b.build().rewrite(lambda n: n if n.is_leaf() else replace(n, backend="cpu"))
    plan = plan_memory(graph, [Split(0, "cpu", tuple(n.id for n in graph if not n.is_leaf()), ())])
    waits = dict(zip((n.name for n in calls(graph)), barriers(graph, refs(plan)), strict=True))
    expected = {"matmul": False, "q_rope": True, "k_rope": False, "v_store": False, "reads_q": True, "reads_k": False}
    assert waits == expected


def window(start: int, stop: int) -> Window:
    return Window(TensorType((stop - start,), U8), start, (1,))


def test_reads_alone_never_wait_and_a_write_does_either_way_round() -> None:
    low, high = Access("b", window(0, 8)), Access("b", window(7, 9))
    elsewhere = Access("c", window(0, 8))
    reading, writing = Accesses([low], [elsewhere]), Accesses([], [high])
    assert not Accesses([low], []).conflicts(Accesses([high], []))
    assert reading.conflicts(writing)
    assert writing.conflicts(reading)
    assert Accesses([], [low]).conflicts(writing)
    assert not Accesses([], [elsewhere]).conflicts(writing)


def test_threads_that_keep_to_their_own_bytes_need_no_barrier() -> None:
    small, same, large = (Accesses([], [private_bytes("scratch", n)]) for n in (64, 64, 128))
    assert not small.conflicts(same)
    assert small.conflicts(large)
    open_calls = OpenCalls()
    assert [open_calls.must_wait(c) for c in (small, same, large, large, small)] == [False, False, True, False, True]
