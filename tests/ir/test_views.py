"""Views: byte offsets and strides against numpy's own, and evaluation of views of views."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_builders import Array, floats, rows_input, run

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import F32
from minfer_ir.evaluate import Weights, evaluate
from minfer_ir.formats import Q8A32
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.ops.shape import regroup
from minfer_ir.opspec import OpError, attrs_from_json
from minfer_ir.types import TensorType

DIMS = st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=4)


@st.composite
def strided_arrays(draw: st.DrawFn) -> Array:
    """A permuted and sliced window of a larger array."""
    shape = draw(DIMS)
    padding = [draw(st.integers(0, 2)) for _ in shape]
    array = np.zeros([d + p for d, p in zip(shape, padding, strict=True)], np.float32)
    array = array[tuple(slice(p, None) for p in padding)]
    return array.transpose(draw(st.permutations(range(len(shape)))))


@st.composite
def factorings(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape of `size` elements, ones among its dims."""
    out: list[int] = []
    while size > 1:
        factor = draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0]))
        out += [factor, *([1] * draw(st.integers(0, 1)))]
        size //= factor
    return tuple(out) or (1,)


@given(st.data())
def test_regroup_gives_numpys_strides_exactly_where_numpy_needs_no_copy(data: st.DataObject) -> None:
    array = data.draw(strided_arrays())
    shape = data.draw(factorings(array.size))
    ours = regroup(array.shape, array.strides, shape)
    try:
        theirs = array.reshape(shape, copy=False)
    except ValueError:
        assert ours is None
        return
    assert ours is not None
    moving = [(a, b) for a, b, d in zip(ours, theirs.strides, shape, strict=True) if d > 1]
    assert all(a == b for a, b in moving)


def bytes_of_view(graph: Graph, node: Node, storage: Array) -> Array:
    """What the aliases say the node's elements are, read from the owner's bytes by hand."""
    offset, view = 0, node.view
    while view is not None:
        offset += view.offset
        view = graph[view.source].view
    return np.ndarray(node.type.shape, np.float32, storage.tobytes(), offset, node.strides)


@st.composite
def view_chains(draw: st.DrawFn) -> tuple[Graph, Array]:
    """An input and up to five views of views over it."""
    b = GraphBuilder()
    shape = (draw(st.sampled_from((1, 2, 3))), draw(st.sampled_from((1, 6, 12, 24))))
    node = rows_input(b, "x", *shape)
    for _ in range(draw(st.integers(1, 5))):
        node = draw(st.sampled_from((cut, permuted, reshaped)))(draw, b, node)
    b.output(node)
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    return b.build(), values


def cut(draw: st.DrawFn, b: GraphBuilder, x: Node) -> Node:
    sizes = [x.type.shape[0], *(draw(st.integers(1, d)) for d in x.type.shape[1:])]
    starts = [draw(st.integers(0, d - n)) for d, n in zip(x.type.shape, sizes, strict=True)]
    return b.view(x, starts=starts, shape=sizes)


def permuted(draw: st.DrawFn, b: GraphBuilder, x: Node) -> Node:
    return b.permute(x, axes=(0, *draw(st.permutations(range(1, len(x.type.shape))))))


def reshaped(draw: st.DrawFn, b: GraphBuilder, x: Node) -> Node:
    rows = x.type.shape[0]
    return b.reshape(x, shape=(rows, *draw(factorings(x.type.size // rows))))


@given(view_chains())
def test_aliases_of_views_of_views_address_what_evaluation_returns(chain: tuple[Graph, Array]) -> None:
    graph, values = chain
    node = graph[graph.outputs[0]]
    [result] = run(graph, x=values)
    owner = graph[graph.owner(node.id)]
    storage = values if owner.is_leaf() else run(Graph(graph.nodes, (owner.id,)), x=values)[0]
    assert np.array_equal(bytes_of_view(graph, node, np.ascontiguousarray(storage)), result)


def test_a_reshape_that_numpy_would_copy_gets_a_contiguous_copy_first() -> None:
    b = GraphBuilder()
    x = b.permute(b.reshape(rows_input(b, "x", 2, 12), shape=(2, 3, 4)), axes=(0, 2, 1))
    node = b.output(b.reshape(x, shape=(2, 12)))
    graph = b.build()
    assert [n.op for n in graph] == ["input", "reshape", "permute", "contiguous", "reshape"]
    values = floats(1, 2, 12)
    [out] = run(graph, x=values)
    assert np.array_equal(out, values.reshape(2, 3, 4).transpose(0, 2, 1).reshape(2, 12))
    assert graph.owner(node.id) == 3


def test_views_of_quantized_rows_keep_each_row_with_its_bytes() -> None:
    b = GraphBuilder()
    x = b.input(key="x", shape=(6, 32), dtype="f32")
    stored = b.quantize_act(x, dtype="Q8A32")
    cut_rows = b.view(stored, starts=(2, 0), shape=(4, 32))
    swapped = b.permute(b.reshape(stored, shape=(2, 3, 32)), axes=(1, 0, 2))
    for node in (cut_rows, swapped):
        b.output(node)
    values = floats(2, 6, 32)
    outs = evaluate(b.build(), {"x": values}, Weights())
    rounded = Q8A32.decode(Q8A32.encode(values))
    assert np.array_equal(outs[0], rounded[2:])
    assert np.array_equal(outs[1], rounded.reshape(2, 3, 32).transpose(1, 0, 2))


def test_reshape_may_change_axis_0_of_a_value_that_counts_no_rows() -> None:
    b = GraphBuilder()
    b.output(b.reshape(b.input(key="x", shape=(2, 6), dtype="f32"), shape=(3, 4)))
    values = floats(3, 2, 6)
    assert np.array_equal(run(b.build(), x=values)[0], values.reshape(3, 4))


PLAIN = TensorType((4, 6), F32)
ROWS = TensorType((4, 6), F32, "token")
BLOCKS = TensorType((4, 64), Q8A32, "token")


@pytest.mark.parametrize(
    ("op", "attrs", "source", "message"),
    [
        ("view", {"starts": [0, 4], "shape": [4, 3]}, ROWS, "window (4, 3) at (0, 4) isn't inside (4, 6)"),
        ("view", {"starts": [0, -1], "shape": [4, 3]}, ROWS, "at (0, -1) isn't inside"),
        ("view", {"starts": [0, 0], "shape": [4, 0]}, ROWS, "window (4, 0)"),
        ("view", {"starts": [0], "shape": [4]}, ROWS, "isn't inside (4, 6)"),
        ("view", {"starts": [1, 0], "shape": [2, 6]}, ROWS, "axis 0 counts token rows and can't be cut"),
        ("view", {"starts": [0, 0], "shape": [4, 32]}, BLOCKS, "rows of Q8A32 can't be cut"),
        ("reshape", {"shape": [4, 5]}, ROWS, "(4, 6) has 24 elements, (4, 5) has 20"),
        ("reshape", {"shape": [-4, -6]}, PLAIN, "(-4, -6)"),
        ("reshape", {"shape": [8, 3]}, ROWS, "axis 0 counts token rows and must stay 4, asked for (8, 3)"),
        ("reshape", {"shape": [4, 2, 32]}, BLOCKS, "rows of Q8A32 must stay 64 long"),
        ("permute", {"axes": [0, 0]}, PLAIN, "axes (0, 0) aren't a permutation of 2 axes"),
        ("permute", {"axes": [1, 0]}, ROWS, "would move the row axis"),
    ],
)
def test_windows_that_do_not_fit_are_refused_with_both_shapes(
    op: str, attrs: dict[str, object], source: TensorType, message: str
) -> None:
    with pytest.raises(OpError) as caught:
        OPS[op].check(attrs_from_json(OPS[op], attrs), [source])
    assert message in str(caught.value)
