"""The op matrix: the numpy backend passes every cell, and every way of being wrong is reported as FAIL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from minfer_ir.dtypes import F32
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.opspec import Op
from minfer_ir.runtime.backend import BackendError, Binding, Split
from minfer_ir.runtime.numpy_backend import NumpyBackend, NumpyProgram
from minfer_ir.testing.op_matrix import Cell, count_verdicts, run_matrix, run_variant
from minfer_ir.testing.variants import Variant, typed_variants, variant_graph, variants
from minfer_ir.types import TensorType


class BadProgram(NumpyProgram):
    """Does what numpy does, and then one thing wrong to the result of one op."""

    fault: Any

    def run_node(self, node_id: int) -> None:
        """Compute, then spoil."""
        super().run_node(node_id)
        self.fault(self, self._graph[node_id])

    def window(self, node: Node) -> Any:
        return self._value(node)

    def raw(self, node: Node) -> Any:
        """Every byte of the buffer that the node lies in."""
        return self._buffers.bytes_of(self._binding.values[node.id].buffer)

    def operand(self, node: Node, slot: int) -> Node:
        return self._graph[node.sources[slot]]


class BadBackend(NumpyBackend):
    """A backend that gets one op wrong."""

    name = "bad"

    def __init__(self, op: str, fault: Any) -> None:
        super().__init__()
        self.op, self.fault = op, fault

    def compile(self, graph: Graph, split: Split, binding: Binding) -> NumpyProgram:
        """A program with the fault in it."""
        weights = {node: self._weights[w] for node, w in binding.weights.items()}
        kind = BadProgram if graph[split.nodes[0]].op == self.op else NumpyProgram
        program = kind(graph, split, binding, self.buffers, weights)
        program.fault = self.fault  # type: ignore[attr-defined]
        return program


def first(op: str, layout: str = "plain", contains: str = "") -> Variant:
    return next(v for v in variants(OPS[op]) if v.layout == layout and contains in v.label)


def test_numpy_passes_every_cell_of_every_op() -> None:
    cells = list(run_matrix(NumpyBackend()))
    assert [str(c) for c in cells if c.verdict != "PASS"] == []
    assert {c.variant.op.name for c in cells} == {name for name, op in OPS.items() if op.effect != "leaf"}
    assert {c.variant.layout for c in cells} == {"plain", "strided", "ragged", "inplace"}


def test_only_the_wrong_op_fails() -> None:
    def one_element(program: BadProgram, node: Node) -> None:
        program.window(node)[0, 0] += 1e-4

    backend = BadBackend("rms_norm", one_element)
    cells = list(run_matrix(backend, [OPS["add"], OPS["rms_norm"], OPS["qk_norm"]]))
    assert {c.variant.op.name for c in cells if c.verdict == "FAIL"} == {"rms_norm"}
    assert {c.verdict for c in cells if c.variant.op.name == "rms_norm"} == {"FAIL"}
    assert all("first at (0, 0)" in c.detail for c in cells if c.verdict == "FAIL")
    assert {c.verdict for c in cells if c.variant.op.name != "rms_norm"} == {"PASS"}


def change_operand(program: BadProgram, node: Node) -> None:
    program.window(program.operand(node, 0))[-1, -1] += 1


def touch_the_guard(program: BadProgram, node: Node) -> None:
    program.raw(node)[node.type.nbytes] = 0


def leave_an_element(program: BadProgram, node: Node) -> None:
    program.window(node)[-1, -1:].view(np.uint8)[:] = 0xFF


def write_the_whole_bucket(program: BadProgram, node: Node) -> None:
    program.raw(node)[: node.type.nbytes].view(np.float32)[-node.type.shape[-1] :] = 0


def raise_an_error(program: BadProgram, node: Node) -> None:
    raise BackendError("no such kernel")


@pytest.mark.parametrize(
    ("fault", "layout", "detail"),
    [
        (change_operand, "plain", "bytes outside the result changed"),
        (touch_the_guard, "plain", "bytes outside the result changed"),
        (write_the_whole_bucket, "ragged", "bytes outside the result changed"),
        (leave_an_element, "plain", "nan"),
        (raise_an_error, "plain", "BackendError: no such kernel"),
    ],
)
def test_each_way_of_misbehaving_is_seen(fault: Any, layout: str, detail: str) -> None:
    variant = first("silu", layout, "3x17" if layout == "ragged" else "")
    assert run_variant(NumpyBackend(), variant).verdict == "PASS"
    cell = run_variant(BadBackend("silu", fault), variant)
    assert cell.verdict == "FAIL"
    assert detail in cell.detail


def test_a_strided_operand_is_read_where_it_lies() -> None:
    class IgnoresStrides(NumpyBackend):
        """Takes every operand for contiguous."""

        def compile(self, graph: Graph, split: Split, binding: Binding) -> NumpyProgram:
            from dataclasses import replace

            values = {i: replace(ref, strides=graph[i].type.strides) for i, ref in binding.values.items()}
            return super().compile(graph, split, replace(binding, values=values))

    variant = first("silu", "strided")
    assert run_variant(IgnoresStrides(), first("silu")).verdict == "PASS"
    assert run_variant(IgnoresStrides(), variant).verdict == "FAIL"


def test_a_refusal_is_reported_with_the_backends_reason_and_nothing_runs() -> None:
    class Refuses(NumpyBackend):
        """No quantized weights."""

        def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
            if op == "matmul" and operands[1].dtype.name.startswith("Q"):
                return f"no kernel for {operands[1].dtype.name}"
            return None

        def allocate(self, nbytes: int) -> int:
            assert not self.forbidden
            return super().allocate(nbytes)

        forbidden = False

    backend = Refuses()
    cells = list(run_matrix(backend, [OPS["matmul"]]))
    counts = count_verdicts(cells)
    assert counts["FAIL"] == 0 and counts["PASS"] > 0 and counts["REFUSED"] > counts["PASS"]
    assert {c.detail for c in cells if c.verdict == "REFUSED" and "Q4_K" in c.variant.label} == {"no kernel for Q4_K"}
    backend.forbidden = True
    assert run_variant(backend, first("matmul", contains="Q4_K")).verdict == "REFUSED"


def test_a_contiguous_backend_is_not_given_strided_operands() -> None:
    class Contiguous(NumpyBackend):
        """Walks no strides."""

        from dataclasses import replace as _replace

        capabilities = _replace(NumpyBackend.capabilities, layouts="contiguous")

    verdicts = {(c.variant.layout, c.verdict) for c in run_matrix(Contiguous(), [OPS["silu"]])}
    assert verdicts == {("plain", "PASS"), ("ragged", "PASS"), ("inplace", "PASS"), ("strided", "REFUSED")}


def test_buffers_are_given_back() -> None:
    backend = NumpyBackend()
    list(run_matrix(backend, [OPS["attention"], OPS["add_rms_norm"]]))
    assert backend.buffers._buffers == {}


def test_the_same_seed_gives_the_same_values() -> None:
    seen: list[bytes] = []

    def keep(program: BadProgram, node: Node) -> None:
        seen.append(program.window(node).tobytes())

    for seed in (1, 1, 2):
        run_variant(BadBackend("add", keep), first("add"), seed)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.effect != "leaf"], ids=lambda op: op.name)
def test_variants_cover_every_accepted_type_and_have_unique_labels(op: Op) -> None:
    every = list(variants(op))
    assert len({str(v) for v in every}) == len(every)
    for i, slot in enumerate(op.operands):
        tried = {v.operands[i].dtype.name for v in every if i < len(v.operands)}
        if "activation" in slot.dtypes and op.effect != "view":
            assert tried == {"f32", "Q8A32", "Q8A256"}
        if slot.dtypes == ("f32", "F32"):
            assert tried == {"f32", "F32"}
    for variant in every:
        graph, operands = variant_graph(variant)
        assert graph.nodes[-1].type == variant.out
        assert [graph[i].type for i in operands] == list(variant.operands)


def test_every_weight_format_meets_every_activation_in_matmul() -> None:
    pairs = {(v.operands[0].dtype.name, v.operands[1].dtype.name) for v in typed_variants(OPS["matmul"])}
    assert len(pairs) == 3 * 14


def test_inplace_variants_share_the_buffer() -> None:
    targets = {(v.op.name, v.target) for op in OPS.values() for v in variants(op) if v.layout == "inplace"}
    assert {("swiglu", "gate"), ("swiglu", "up"), ("add", "x"), ("rope", "x")} <= targets
    assert all(name in OPS[op].inplace for op, name in targets)


def test_a_cell_reads_as_one_line() -> None:
    variant = Variant(OPS["silu"], "1x1", (TensorType((1, 1), F32, "token"),), None, {}, "inplace", "x")
    assert str(Cell("cpu", variant, "FAIL", "off")) == "FAIL cpu: silu 1x1 inplace x: off"
    assert str(Cell("cpu", variant, "PASS")) == "PASS cpu: silu 1x1 inplace x"
