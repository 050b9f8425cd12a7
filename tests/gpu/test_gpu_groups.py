"""Launch groups: the same bits with and without them, run after run, and what a layer's decode step launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from minfer_ir.builder import GraphBuilder
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.runtime.backend import LAUNCH_GROUPS, Binding, BufRef, Split
from minfer_ir.testing.values import Feed, draw_feed
from minfer_kernels.gpu.backend import GpuBackend, GpuProgram
from minfer_kernels.gpu.emit import GROUPS

WIDTH, HEAD, CELLS = 256, 32, 6
ROPE: dict[str, Any] = {"dims": HEAD, "base": 10000.0, "max_positions": 16}


@dataclass(frozen=True)
class Layer:
    """How a layer's projections are made: weight formats of q, k, v and the rest, and what stands around them."""

    formats: tuple[str, str, str, str] = ("Q4_0", "Q4_0", "Q4_0", "Q4_0")
    cell: str = "f16"
    bias: bool = False
    norm: bool = False
    pairs: str = "neox"
    rows: int = 1

    @property
    def activation(self) -> str:
        return "Q8A256" if self.formats[0].endswith("_K") else "Q8A32"

    def graph(self) -> Graph:
        """Activations in, q and cells out; then a product onto a residual, its norm, and the gated half."""
        b = GraphBuilder()
        x = b.input(key="x", shape=(self.rows, WIDTH), dtype="f32", rows="token")
        y = b.input(key="y", shape=(self.rows, WIDTH), dtype="f32", rows="token")
        quantized = b.quantize_act(x, dtype=self.activation)
        index = {
            key: b.input(key=key, shape=(self.rows,), dtype="i32", rows="token", limit=limit)
            for key, limit in (("positions", 16), ("cells", CELLS))
        }
        b.output(self._projected(b, quantized, "q", 2, 0, index, None))
        for name, fmt in (("k", 1), ("v", 2)):
            region = b.kv(key=name, cells=CELLS, width=HEAD, dtype=self.cell)
            b.output(self._projected(b, quantized, name, 1, fmt, index, region))
        total = b.matmul_add(quantized, self._weight(b, "down", WIDTH, self.formats[3]), y, name="total")
        weight = b.weight(key="norm", shape=(WIDTH,), dtype="F32")
        normed = b.rms_norm_quantize(total, weight, eps=1e-6, dtype=self.activation, name="normed")
        gate, up = (self._weight(b, name, WIDTH, self.formats[3]) for name in ("gate", "up"))
        b.output(total)
        b.output(b.matmul_swiglu_quantize(normed, gate, up, dtype=self.activation, name="hidden"))
        return b.build()

    def _weight(self, b: GraphBuilder, name: str, n: int, fmt: str) -> Node:
        return b.weight(key=f"w_{name}", shape=(n, WIDTH), dtype=fmt)

    def _projected(
        self, b: GraphBuilder, x: Node, name: str, heads: int, fmt: int, index: dict[str, Node], region: Node | None
    ) -> Node:
        n = heads * HEAD
        rotates, normed = name != "v", self.norm and name != "v"
        operands = [x, self._weight(b, name, n, self.formats[fmt])]
        operands += [b.weight(key=f"bias_{name}", shape=(n,), dtype="F32")] * self.bias
        operands += [b.weight(key=f"norm_{name}", shape=(HEAD,), dtype="F32")] * normed
        operands += [index["positions"]] * rotates
        stored = [] if region is None else [region, index["cells"]]
        op = "matmul" + "_add" * self.bias + "_norm" * normed + "_rope" * rotates + "_kv_store" * bool(stored)
        attrs: dict[str, Any] = {}
        if rotates:
            attrs = {**ROPE, "pairs": self.pairs, "heads": (self.rows, heads, HEAD)}
        if rotates and stored:
            attrs["row"] = (self.rows, n)
        if normed:
            attrs["eps"] = 1e-6
        return getattr(b, op)(*operands, *stored, **attrs, name=name)


class Step:
    """A layer compiled on the backend over its own buffers, some groups off."""

    def __init__(self, backend: GpuBackend, graph: Graph, feed: Feed, off: frozenset[str] = frozenset()) -> None:
        self.backend, self.graph, self.feed = backend, graph, feed
        self.refs: dict[int, BufRef] = {}
        weights: dict[int, int] = {}
        for node in graph:
            owner = graph.owner(node.id)
            if node.op == "weight":
                rows = feed.weights[node.attrs.key]
                shape = node.type.shape
                weights[node.id] = backend.register_weight(
                    node.name, node.attrs.dtype, shape, [rows.reshape(-1, rows.shape[-1])], frozenset({"matmul"})
                )
            elif owner == node.id:
                self.refs[node.id] = BufRef(backend.allocate(node.type.nbytes), 0, node.type.nbytes, node.strides)
            else:
                held = self.refs[owner]
                self.refs[node.id] = BufRef(held.buffer, 0, held.length, node.strides)
        self.n_rows = BufRef(backend.allocate(8), 0, 8, (4,))
        computed = tuple(n.id for n in graph if not n.is_leaf())
        split = Split(0, backend.name, computed, (), off)
        self.program: GpuProgram = backend.compile(graph, split, Binding(self.refs, weights, self.n_rows))
        self._fill()

    def _fill(self) -> None:
        for node in self.graph:
            if node.op == "input":
                self.backend.write(self.refs[node.id], self.feed.inputs[node.attrs.key])
            if node.op == "kv":
                self.backend.write(self.refs[node.id], self.feed.regions[node.attrs.key])
        self.backend.write(self.n_rows, np.array([self.feed.n_rows["token"], 0], np.int32))

    def run(self) -> list[bytes]:
        """The bytes of everything that isn't given."""
        self.program.run()
        return self.values()

    def values(self) -> list[bytes]:
        owned = [n for n in self.graph if n.id in self.refs and n.op != "input" and self.graph.owner(n.id) == n.id]
        return [self.backend.read(self.refs[n.id], n.type).tobytes() for n in owned]


@pytest.fixture(scope="module")
def backend() -> GpuBackend:
    return GpuBackend(torch.device("cpu"))


LAYERS = {
    "llama": Layer(pairs="interleaved"),
    "qwen2, mixed formats": Layer(("Q4_K", "Q5_K", "Q6_K", "Q4_K"), bias=True),
    "qwen3": Layer(("Q8_0",) * 4, cell="q8_0", norm=True, rows=2),
    "f32 cells": Layer(("Q4_1", "Q4_1", "Q5_0", "IQ4_NL"), cell="f32"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_groups_change_no_bit(backend: GpuBackend, name: str) -> None:
    graph = LAYERS[name].graph()
    feed = draw_feed(np.random.default_rng(3), graph, full=True)
    together, apart = Step(backend, graph, feed), Step(backend, graph, feed, frozenset(LAUNCH_GROUPS))
    expected = apart.run()
    assert together.run() == expected
    # Counters are back at 0: another run of the same program does the same.
    assert together.run() == expected
    assert len(together.program.listing()) == 4
    assert len(apart.program.listing()) == 7


@pytest.mark.parametrize("name", [g.name for g in GROUPS if g.name != "fused_attention"])
def test_each_group_has_its_switch_and_shows_in_the_listing(backend: GpuBackend, name: str) -> None:
    graph = Layer().graph()
    feed = draw_feed(np.random.default_rng(3), graph)
    with_it, without = Step(backend, graph, feed), Step(backend, graph, feed, frozenset({name}))
    assert any(line.startswith(f"{name}(") for line in with_it.program.listing())
    assert not any(line.startswith(f"{name}(") for line in without.program.listing())
    assert name in LAUNCH_GROUPS


def test_nodes_run_one_by_one_give_the_same_values(backend: GpuBackend) -> None:
    graph = Layer().graph()
    feed = draw_feed(np.random.default_rng(4), graph, full=True)
    whole, stepped = Step(backend, graph, feed), Step(backend, graph, feed)
    expected = whole.run()
    for node in graph:
        if not node.is_leaf():
            stepped.program.run_node(node.id)
            if node.name == "q":
                q = whole.refs[node.id]
                got = backend.read(stepped.refs[node.id], node.type)
                assert got.tobytes() == backend.read(q, node.type).tobytes()
    assert stepped.values() == expected


def test_many_rows_are_normed_side_by_side(backend: GpuBackend) -> None:
    graph = Layer(rows=8).graph()
    listing = Step(backend, graph, draw_feed(np.random.default_rng(5), graph)).program.listing()
    assert not any(line.startswith("fused_norm(") for line in listing)
    assert any(line.startswith("fused_qkv(q, ") for line in listing)


def test_every_cell_type_is_tried() -> None:
    assert {layer.cell for layer in LAYERS.values()} == set(KV_TYPES)
