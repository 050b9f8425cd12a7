"""Costs of ops: what a fused op, a filled bucket and a window at some depth come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minfer_ir.builder import GraphBuilder
from minfer_ir.costs import step_costs
from minfer_ir.dtypes import F16, F32, I32
from minfer_ir.formats import FORMATS
from minfer_ir.ops import FUSED, OPS
from minfer_ir.opspec import CellReads, Cost, FusedOp, attrs_from_json
from minfer_ir.types import TensorType

ROWS = "token"


def typed(*shape: int, dtype: object = F32) -> TensorType:
    return TensorType(shape, dtype, ROWS)  # pyright: ignore[reportArgumentType]


def test_a_matmul_reads_its_weight_once_and_multiplies_every_row() -> None:
    weight = TensorType((96, 64), FORMATS["Q4_0"])
    x, out = typed(3, 64, dtype=FORMATS["Q8A32"]), typed(3, 96)
    # Q4_0: 18 bytes per 32 weights. Q8A32: 32 bytes and two floats.
    resident = 96 * 2 * 18
    assert OPS["matmul"].cost(None, out, x, weight) == Cost(
        2 * 3 * 96 * 64, resident + 3 * 2 * 40 + 3 * 96 * 4, resident
    )


def test_attention_multiplies_per_row_and_reads_a_cell_once() -> None:
    attrs = attrs_from_json(OPS["attention"], {"n_kv_heads": 2, "scale": 0.5})
    q, cells = typed(4, 6, 8), TensorType((100, 16), F16)
    operands = (q, cells, cells, typed(4, dtype=I32), TensorType((1,), I32))
    found = OPS["attention"].cost(attrs, q, *operands, reads=CellReads(rows=10 + 11 + 12 + 13, cells=13))
    resident = 13 * 2 * 16 * 2
    assert found == Cost(46 * 6 * 8 * 2 * 2, resident + 2 * 4 * 6 * 8 * 4, resident)
    everything = OPS["attention"].cost(attrs, q, *operands)
    assert everything == OPS["attention"].cost(attrs, q, *operands, reads=CellReads(rows=4 * 100, cells=100))


def test_rows_that_are_not_there_cost_nothing() -> None:
    b = GraphBuilder()
    b.input(key="n_rows", shape=(2,), dtype="i32")
    ids = b.input(key="ids", shape=(8,), dtype="i32", rows="token", limit=50)
    x = b.get_rows(b.weight(key="table", shape=(50, 64), dtype="Q4_0"), ids)
    b.output(b.scale(x, factor=2.0))
    graph = b.build()
    costs = step_costs(graph, {"n_rows": np.array([3, 3], np.int32)})
    by_op = {graph[node].op: cost for node, cost in costs.items()}
    assert by_op["get_rows"] == Cost(0, 3 * 64 * 4 + 3 * 36, 3 * 36)
    assert by_op["scale"] == Cost(3 * 64, 2 * 3 * 64 * 4, 0)
    assert set(by_op) == {"get_rows", "scale"}


@pytest.mark.parametrize("case", [(name, i) for name, op in FUSED.items() for i in range(len(op.cases()))], ids=str)
def test_a_fused_op_costs_what_it_stands_for_without_the_values_between(case: tuple[str, int]) -> None:
    op = FUSED[case[0]]
    example = op.cases()[case[1]]
    attrs = attrs_from_json(op, example.attrs)
    out = op.check(attrs, example.operands)
    check_cost(op, attrs, out, example.operands)
    # A bucket of which one row is there: attrs still say the bucket's shapes.
    check_cost(op, attrs, one_row(out), tuple(one_row(kind) for kind in example.operands))


def one_row(kind: TensorType) -> TensorType:
    return replace(kind, shape=(1, *kind.shape[1:])) if kind.rows else kind


def check_cost(op: FusedOp, attrs: Any, out: TensorType, given: Sequence[TensorType]) -> None:
    cost = op.cost(attrs, out, *given)
    # Of a region a store touches the cells of its rows and no others, and it gives back no value.
    operands = {slot.name: kind for slot, kind in zip(op.operands, given, strict=False)}
    # Frequency factors are read once, for the table of angles, before the first step.
    operands.pop("factors", None)
    region = operands.pop(op.writes) if op.writes else None
    n_rows = next(t.shape[0] for t in operands.values() if t.rows)
    written = n_rows * region.nbytes // region.shape[0] if region else 0
    moved = sum(t.nbytes for t in operands.values()) + (written if region else out.nbytes)
    assert cost.bytes == moved
    assert cost.resident == written + sum(t.nbytes for t in operands.values() if t.rows is None)
    assert cost.flops > 0


def test_a_fused_norm_counts_the_norm() -> None:
    x, weight = typed(3, 64), TensorType((64,), F32)
    attrs = attrs_from_json(OPS["add_rms_norm"], {"eps": 1e-5})
    # A sum, then four for the norm, per element.
    assert OPS["add_rms_norm"].cost(attrs, typed(3, 128), x, x, weight).flops == 3 * 64 * 5
