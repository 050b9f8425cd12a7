"""The random graphs hold what they promise, and their values are legal."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from minfer_ir.dtypes import F32, I32
from minfer_ir.evaluate import evaluate
from minfer_ir.formats import FORMATS
from minfer_ir.graph import Graph
from minfer_ir.ops import OPS
from minfer_ir.ops.attention import window_cells
from minfer_ir.testing.strategies import feeds, graphs, values
from minfer_ir.testing.values import draw_value
from minfer_ir.types import TensorType

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(st.data())
def test_graphs_verify_and_their_feeds_evaluate_inside_every_bound(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    feed = data.draw(feeds(graph))
    assert graph.verify() is graph
    for node in graph:
        if node.op == "kv_store":
            cells = feed.inputs[node.operand(graph, "cells").attrs.key]
            assert len(set(cells.tolist())) == len(cells)
            assert (cells < node.type.shape[0]).all()
        if node.op == "attention":
            keys = [node.operand(graph, name).attrs.key for name in ("positions", "window")]
            used = window_cells(*(feed.inputs[k] for k in keys))
            assert all(0 <= c < node.operand(graph, "k").type.shape[0] for row in used for c in row)
    with np.errstate(all="ignore"):
        outs = evaluate(graph, feed.inputs, feed.weights, feed.fresh_regions())
    for output, value in zip(graph.outputs, outs, strict=True):
        kind = graph[output].type
        rows = kind.shape[0] if kind.rows is None else feed.n_rows[kind.rows]
        assert value.shape == (rows, *kind.shape[1:])


def is_view(graph: Graph, i: int) -> bool:
    return graph[i].spec.effect == "view"


FEATURES = {
    "a view of a view": lambda g: any(is_view(g, n.id) and is_view(g, n.sources[0]) for n in g),
    "one node reading a value twice": lambda g: any(len(set(n.sources)) < len(n.sources) for n in g),
    "a value with several readers": lambda g: any(len(u) > 1 for i, u in g.users.items() if not g[i].is_leaf()),
    "an in-place op on a view": lambda g: any(n.spec.inplace and is_view(g, n.sources[0]) for n in g),
    "a read after a store": lambda g: any(
        n.op == "attention" and n.operand(g, "k").op == "kv_store" for n in g
    ),
    "a store into a stored region": lambda g: any(n.op == "kv_store" and g[n.sources[0]].op == "kv_store" for n in g),
    "an output that is read": lambda g: any(g.users[o] for o in g.outputs),
    "a dead end": lambda g: any(
        not g.users[n.id] and n.id not in g.outputs and n.spec.effect == "pure" for n in g
    ),
    "rows of both kinds": lambda g: {"token", "output"} <= {n.type.rows for n in g if not n.is_leaf()},
    "two blocks": lambda g: {0, 1} <= {n.block for n in g},
    "a quantized view": lambda g: any(is_view(g, n.id) and n.type.dtype.name == "Q8A32" for n in g),
    "stacked weights": lambda g: any(n.op == "weight_concat" for n in g),
}  # fmt: skip


def test_every_op_and_every_feature_turns_up() -> None:
    ops: Counter[str] = Counter()
    features: Counter[str] = Counter()

    @settings(max_examples=400, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(graphs())
    def collect(graph: Graph) -> None:
        ops.update({n.op for n in graph})
        features.update(name for name, holds in FEATURES.items() if holds(graph))

    collect()
    print(ops, features)
    assert {name for name in OPS if ops[name] < 3} == set()
    assert {name for name in FEATURES if features[name] < 3} == set()


@QUICK
@given(graphs(max_ops=6, n_blocks=1, without=("attention", "kv_store")))
def test_ops_can_be_left_out(graph: Graph) -> None:
    assert not {"attention", "kv_store"} & {n.op for n in graph}
    assert {n.block for n in graph} <= {0, None}


@given(st.data(), st.sampled_from(list(FORMATS)))
def test_values_have_the_storage_form_of_their_type(data: st.DataObject, name: str) -> None:
    fmt = FORMATS[name]
    kind = TensorType((2, 3, 256), fmt)
    value = data.draw(values(kind))
    assert (value.shape, value.dtype) == ((2, 3, fmt.row_bytes(256)), np.uint8)
    decoded = fmt.decode(value)
    assert np.isfinite(decoded).all() and decoded.any()


def test_integers_have_to_be_given() -> None:
    rng = np.random.default_rng(0)
    assert np.array_equal(draw_value(rng, TensorType((2, 2), I32), (1, 2, 3, 4)), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match=r"a value of i32\[3\] needs its integers given"):
        draw_value(rng, TensorType((3,), I32))
    assert draw_value(rng, TensorType((4, 5), F32)).std() > 0.3
