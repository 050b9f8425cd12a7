"""Attention: each window mode against torch's attention over the gathered cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_builders import Array, floats, reference

from minfer_ir.dtypes import F16, F32, I32
from minfer_ir.ops import OPS
from minfer_ir.opspec import OpError, attrs_from_json
from minfer_ir.types import TensorType

CELLS = 23


def theirs(q: Array, k: Array, v: Array, cells: list[list[int]], kv_heads: int, scale: float) -> Array:
    """torch's grouped attention, row by row over the cells named; no cells give zeros."""
    out = np.zeros(q.shape, np.float32)
    for t, row in enumerate(cells):
        if row:
            keys, values = (
                torch.tensor(a[row].astype(np.float64)).reshape(len(row), kv_heads, -1).transpose(0, 1)[None]
                for a in (k, v)
            )
            query = torch.tensor(q[t].astype(np.float64))[None, :, None]
            result = torch.nn.functional.scaled_dot_product_attention(query, keys, values, scale=scale, enable_gqa=True)
            out[t] = result[0, :, 0].numpy()
    return out


@pytest.mark.parametrize("mode", ["causal", "span", "map"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_window_mode_is_attention_over_the_cells_it_names(mode: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from((np.float32, np.float16)))
    heads, kv_heads, dim = data.draw(st.sampled_from(((1, 1, 1), (6, 2, 20), (4, 4, 7))))
    rows = 3
    base = data.draw(st.integers(0, 5)) if mode == "causal" else 0
    positions = data.draw(st.lists(st.integers(0, CELLS - 6), min_size=rows, max_size=rows))
    span = st.tuples(st.integers(0, CELLS), st.integers(0, CELLS)).map(sorted)
    if mode == "causal":
        window = np.array([base], np.int32)
        cells = [list(range(base, base + p + 1)) for p in positions]
    elif mode == "span":
        spans = data.draw(st.lists(span, min_size=rows, max_size=rows))
        window, cells = np.array(spans, np.int32), [list(range(lo, hi)) for lo, hi in spans]
    else:
        runs = data.draw(st.lists(st.lists(span, min_size=4, max_size=4), min_size=rows, max_size=rows))
        window = np.array([[x for lo, hi in row for x in (lo, hi - lo)] for row in runs], np.int32)
        cells = [[c for lo, hi in row for c in range(lo, hi)] for row in runs]
    q = floats(1, rows, heads, dim)
    k, v = (floats(s, CELLS, kv_heads * dim, scale=2.0).astype(dtype) for s in (2, 3))
    scale = dim**-0.5
    ours = reference("attention", q, k, v, np.array(positions, np.int32), window, n_kv_heads=kv_heads, scale=scale)
    np.testing.assert_allclose(ours, theirs(q, k, v, cells, kv_heads, scale), rtol=1e-5, atol=1e-6)


def test_an_empty_window_gives_zeros_whatever_is_in_the_cells() -> None:
    k = np.full((4, 2), np.nan, np.float32)
    for window in (np.array([[2, 2]], np.int32), np.array([[1, 0, 3, 0, 0, 0, 2, 0]], np.int32)):
        out = reference("attention", floats(1, 1, 1, 2), k, k, np.array([0], np.int32), window, n_kv_heads=1, scale=1.0)
        assert np.array_equal(out, np.zeros((1, 1, 2), np.float32))


def test_scores_that_exp_would_overflow_still_give_a_mean_of_the_values() -> None:
    k, v = np.array([[900.0], [900.0], [-900.0]], np.float32), np.array([[1.0], [3.0], [50.0]], np.float32)
    window = np.array([[0, 3]], np.int32)
    out = reference("attention", np.ones((1, 1, 1), np.float32), k, v, window[0, :1], window, n_kv_heads=1, scale=1.0)
    assert out[0, 0, 0] == 2.0


def test_cells_outside_the_window_do_not_matter() -> None:
    q, k, v = floats(1, 2, 2, 4), floats(2, 9, 4), floats(3, 9, 4)
    window, positions = np.array([[2, 5], [3, 4]], np.int32), np.array([0, 0], np.int32)
    before = reference("attention", q, k, v, positions, window, n_kv_heads=1, scale=0.5)
    k[[0, 1, 5, 6, 7, 8]] = np.nan
    v[[0, 1, 5, 6, 7, 8]] = np.inf
    assert np.array_equal(reference("attention", q, k, v, positions, window, n_kv_heads=1, scale=0.5), before)


def test_query_heads_share_kv_heads_in_consecutive_groups() -> None:
    k = np.zeros((1, 4), np.float32)
    v = np.array([[1, 1, 2, 2]], np.float32)
    out = reference(
        "attention", floats(1, 1, 4, 2), k, v, np.array([0], np.int32), np.array([0], np.int32), n_kv_heads=2, scale=1.0
    )
    assert np.array_equal(out[0, :, 0], [1, 1, 2, 2])


ROWS = {
    "q": TensorType((3, 4, 8), F32, "token"),
    "k": TensorType((9, 16), F16),
    "v": TensorType((9, 16), F16),
    "positions": TensorType((3,), I32, "token"),
    "window": TensorType((3, 2), I32, "token"),
}


@pytest.mark.parametrize(
    ("changed", "attrs", "message"),
    [
        ({}, {"n_kv_heads": 3}, "4 query heads are not a multiple of 3 KV heads"),
        ({}, {"n_kv_heads": 0}, "4 query heads are not a multiple of 0"),
        ({}, {"n_kv_heads": 4}, "KV rows hold 16 elements, expected 4 x 8"),
        ({"v": TensorType((9, 16), F32)}, {}, "K is f16 and V is f32"),
        ({"v": TensorType((8, 16), F16)}, {}, "operand v has shape (8, 16), but C is 9"),
        ({"window": TensorType((3, 4), I32, "token")}, {}, "a window of shape (3, 4) fits no mode; for 3 rows"),
        ({"window": TensorType((2, 2), I32, "token")}, {}, "a window of shape (2, 2) fits no mode"),
        ({"positions": TensorType((4,), I32, "token")}, {}, "operand positions has shape (4,), but T is 3"),
        ({"positions": TensorType((3,), I32, "output")}, {}, "positions counts output rows, but T counts token rows"),
        ({"positions": TensorType((3,), F32, "token")}, {}, "operand positions is f32, accepted: i32"),
    ],
)
def test_operands_that_do_not_fit_are_refused_with_their_values(
    changed: dict[str, TensorType], attrs: dict[str, int], message: str
) -> None:
    spec = OPS["attention"]
    with pytest.raises(OpError) as caught:
        spec.check(attrs_from_json(spec, {"n_kv_heads": 2, "scale": 1.0} | attrs), list((ROWS | changed).values()))
    assert message in str(caught.value)
