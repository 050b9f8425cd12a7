"""A fused op's reference is the evaluation of what it says it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from minfer_ir.builder import GraphBuilder
from minfer_ir.evaluate import Weights, encoded, evaluate
from minfer_ir.graph import Node
from minfer_ir.ops import FUSED
from minfer_ir.opspec import FusedOp, attrs_from_json
from minfer_ir.testing.strategies import generators
from minfer_ir.testing.tolerances import BITWISE, Held, difference
from minfer_ir.testing.values import draw_value
from minfer_ir.types import TensorType

CASES = [(op, case) for op in FUSED.values() for case in op.cases()]


def compose(op: FusedOp, attrs: Any, kinds: tuple[TensorType, ...]) -> tuple[GraphBuilder, tuple[Node, ...]]:
    """The op's decomposition over inputs in0, in1, ...; its values."""
    b = GraphBuilder()
    inputs = [b.input(key=f"in{i}", shape=k.shape, dtype=k.dtype.name, rows=k.rows) for i, k in enumerate(kinds)]
    values = op.decompose(b, attrs, *inputs)
    return b, values if isinstance(values, tuple) else (values,)


@pytest.mark.parametrize(("op", "case"), CASES, ids=lambda v: getattr(v, "name", getattr(v, "label", "")))
@settings(max_examples=5, deadline=None)
@given(rng=generators())
def test_the_reference_equals_the_evaluated_composition(op: FusedOp, case: Any, rng: np.random.Generator) -> None:
    attrs = attrs_from_json(op, case.attrs)
    arrays = [draw_value(rng, k) for k in case.operands]
    b, values = compose(op, attrs, case.operands)
    for value in values:
        b.output(value)
    parts = evaluate(b.build(), {f"in{i}": a for i, a in enumerate(arrays)}, Weights())
    out = op.check(attrs, case.operands)
    ours = encoded(out, op.reference(attrs, *arrays))
    theirs = encoded(out, np.concatenate(parts, axis=-1))
    assert difference(Held(op, attrs, out, arrays), theirs, ours, BITWISE) is None


@pytest.mark.parametrize(("op", "case"), CASES, ids=lambda v: getattr(v, "name", getattr(v, "label", "")))
def test_infer_and_parts_follow_from_the_composition(op: FusedOp, case: Any) -> None:
    attrs = attrs_from_json(op, case.attrs)
    _, values = compose(op, attrs, case.operands)
    out = op.check(attrs, case.operands)
    widths = [v.type.shape[-1] for v in values]
    assert out.shape == (*values[0].type.shape[:-1], sum(widths))
    assert {v.type.dtype for v in values} == {out.dtype}
    assert {v.type.rows for v in values} == {out.rows}
    assert op.parts(attrs, *case.operands) == (tuple(widths) if len(values) > 1 else ())


@pytest.mark.parametrize(("op", "case"), CASES, ids=lambda v: getattr(v, "name", getattr(v, "label", "")))
def test_a_composition_uses_every_operand_and_every_step(op: FusedOp, case: Any) -> None:
    b, values = compose(op, attrs_from_json(op, case.attrs), case.operands)
    for value in values:
        b.output(value)
    graph = b.build()
    unread = [n.name for n in graph if not graph.users[n.id] and n.id not in graph.outputs]
    assert unread == []


def test_every_fused_op_is_covered() -> None:
    assert {op.name for op, _ in CASES} == set(FUSED)
