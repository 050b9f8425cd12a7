"""The CPU backend on whole graphs, whose bits depend on nothing that they shouldn't."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import I32
from minfer_ir.evaluate import Weights
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.opspec import Array
from minfer_ir.params import DevicePlan, GraphParams
from minfer_ir.passes.base import Lowering, LoweringError, Pass, run_passes
from minfer_ir.passes.clean import drop_dead
from minfer_ir.passes.fuse import FUSIONS
from minfer_ir.passes.memory import Allocate
from minfer_ir.passes.pipeline import default_pipeline
from minfer_ir.runtime.executable import Executable
from minfer_ir.runtime.resources import Resources
from minfer_ir.testing.strategies import graphs
from minfer_ir.testing.values import Feed, draw_feed
from minfer_ir.types import TensorType
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.compiler.features import HostFeatures, Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary

KERNELS = Path(__file__).resolve().parents[2] / ".cache/test-kernels"
ISAS = [isa for isa in Isa if not HostFeatures.detect().missing(isa)]
ALL_FUSIONS = frozenset(FUSIONS)


@pytest.fixture(scope="module")
def libraries() -> Mapping[Isa, KernelLibrary]:
    return {isa: KernelLibrary(isa, KERNELS) for isa in ISAS}


def with_row_counts(graph: Graph) -> Graph:
    """The graph with the input that every lowered graph has."""
    attrs = OPS["input"].Attrs("n_rows", (2,), I32)
    node = Node(len(graph), "n_rows", "input", (), TensorType((2,), I32), attrs)
    return Graph.ordered([*graph, node], graph.outputs).verify()


def lowered(graph: Graph, backend: CpuBackend, weights: Weights, off: frozenset[str], inplace: bool) -> Executable:
    params = GraphParams(1, None, 64, 64, "causal", "f32", DevicePlan(("cpu",)), off)
    resources = Resources([backend], weights)
    pipeline = default_pipeline(lambda _: graph, resources)
    passes: list[Pass] = [replace(p, inplace=inplace) if isinstance(p, Allocate) else p for p in pipeline]
    made = run_passes(passes, Lowering(params, resources.backends, graph)).executable
    assert made is not None
    return made


def run(executable: Executable, feed: Feed) -> list[Array]:
    rows = np.array([feed.n_rows.get("token", 1), feed.n_rows.get("output", 1)], np.int32)
    inputs = {**feed.inputs, "n_rows": rows}
    for node in executable.graph:
        if node.op == "kv":
            backend = executable.resources.backends["cpu"]
            backend.write(executable.ref(node.id, "cpu"), feed.regions[node.attrs.key])
    executable.run(inputs)
    return executable.outputs(inputs)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs(max_ops=14), seed=st.integers(0, 2**32 - 1))
def test_no_fusion_no_buffer_sharing_no_thread_and_no_instruction_set_changes_a_bit(
    libraries: Mapping[Isa, KernelLibrary], graph: Graph, seed: int
) -> None:
    assume(any(n.view is None and not n.is_leaf() for n in drop_dead(graph)))
    feed = draw_feed(np.random.default_rng(seed), graph)
    graph = with_row_counts(graph)
    results: list[list[Array]] = []
    arms = [(ISAS[0], 2, frozenset[str](), True), (ISAS[0], 1, ALL_FUSIONS, False), (ISAS[-1], 3, ALL_FUSIONS, True)]
    for isa, threads, off, inplace in arms:
        with CpuBackend(libraries[isa], threads) as backend:
            try:
                executable = lowered(graph, backend, feed.weights, off, inplace)
            except LoweringError as refused:
                assert "no backend can run" in str(refused)
                reject()
            results.append(run(executable, feed))
    for other in results[1:]:
        for expected, actual in zip(results[0], other, strict=True):
            assert np.array_equal(expected, actual, equal_nan=True)


def test_tables_that_differ_in_their_factors_alone_are_two(libraries: Mapping[Isa, KernelLibrary]) -> None:
    """What the budget counts beforehand is what compiling makes, and nothing is counted that is there."""
    b = GraphBuilder()
    x = b.input(key="x", shape=(1, 2, 16), dtype="f32", rows="token")
    positions = b.input(key="positions", shape=(1,), dtype="i32", rows="token")
    for name in ("long", "short", "short"):
        factors = b.weight(key=name, shape=(8,), dtype="F32")
        b.output(b.rope(x, positions, factors, pairs="neox", dims=16, base=1e4, max_positions=32))
    graph = with_row_counts(b.build())
    weights = Weights({name: np.ones((1, 8), np.float32).view(np.uint8) for name in ("long", "short")})
    with CpuBackend(libraries[ISAS[0]], 1) as backend:
        placed = Graph(tuple(node.on("cpu") for node in graph), graph.outputs)
        assert backend.table_need(placed) == 2 * 4 * 32 * 16
        before = backend.weight_bytes()
        made = lowered(graph, backend, weights, frozenset(), True)
        assert backend.weight_bytes() - before == 2 * 4 * 32 * 16 + 2 * 4 * 8
        assert backend.table_need(made.graph) == 0
