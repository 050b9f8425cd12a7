"""A fused op's reference is the evaluation of what it says it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from minfer_ir.builder import GraphBuilder
from minfer_ir.evaluate import Weights, decoded, encoded, evaluate
from minfer_ir.formats.base import Format
from minfer_ir.graph import Node
from minfer_ir.ops import FUSED
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.opspec import FusedOp, Operand, attrs_from_json
from minfer_ir.testing.strategies import generators
from minfer_ir.testing.tolerances import BITWISE, Held, difference
from minfer_ir.testing.values import draw_operand
from minfer_ir.types import TensorType

CASES = [(op, case) for op in FUSED.values() for case in op.cases()]


def compose(op: FusedOp, attrs: Any, kinds: tuple[TensorType, ...]) -> tuple[GraphBuilder, tuple[Node, ...]]:
    """The op's decomposition over leaves called like its operands; its values."""
    b = GraphBuilder()
    values = op.decompose(b, attrs, *(leaf(b, s, k) for s, k in zip(op.operands, kinds, strict=False)))
    return b, values if isinstance(values, tuple) else (values,)


def leaf(b: GraphBuilder, slot: Operand, kind: TensorType) -> Node:
    if slot.dtypes == KV_TYPES:
        return b.kv(key=slot.name, cells=kind.shape[0], width=kind.shape[1], dtype=kind.dtype.name)
    if isinstance(kind.dtype, Format):
        return b.weight(key=slot.name, shape=kind.shape, dtype=kind.dtype)
    return b.input(key=slot.name, shape=kind.shape, dtype=kind.dtype.name, rows=kind.rows)


@pytest.mark.parametrize(("op", "case"), CASES, ids=lambda v: getattr(v, "name", getattr(v, "label", "")))
@settings(max_examples=5, deadline=None)
@given(rng=generators())
def test_the_reference_equals_the_evaluated_composition(op: FusedOp, case: Any, rng: np.random.Generator) -> None:
    attrs = attrs_from_json(op, case.attrs)
    names = [slot.name for slot in op.operands]
    kinds = dict(zip(names, case.operands, strict=False))
    arrays = {name: draw_operand(rng, op.name, name, kind, (case.ints or {}).get(name)) for name, kind in kinds.items()}
    b, values = compose(op, attrs, case.operands)
    for value in values:
        b.output(value)
    regions = {name: a.copy() for name, a in arrays.items()}
    parts = evaluate(b.build(), arrays, Weights(arrays), regions)
    out = op.check(attrs, case.operands)
    numbers = [decoded(kinds[name], a) for name, a in arrays.items()]
    ours = encoded(out, op.reference(attrs, *numbers))
    theirs = encoded(out, np.concatenate(parts, axis=-1))
    assert difference(Held(op, attrs, out, numbers), theirs, ours, BITWISE) is None


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
