"""Windows and size classes against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_oracle import addresses

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import F32
from minfer_ir.formats import Q8A32
from minfer_ir.graph import Node
from minfer_ir.memory import Placement, class_bytes
from minfer_ir.memory.window import Window
from minfer_ir.types import TensorType


@st.composite
def view_pairs(draw: st.DrawFn) -> tuple[Node, Node, int, int]:
    """Two chains of views over one buffer, each with its offset."""
    b = GraphBuilder()
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=3)))
    source = b.input(key="x", shape=shape, dtype=F32)
    found = [_chain(draw, b, source) for _ in range(2)]
    return found[0][0], found[1][0], found[0][1], found[1][1]


def _chain(draw: st.DrawFn, b: GraphBuilder, node: Node) -> tuple[Node, int]:
    offset = 0
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            node = b.permute(node, axes=draw(st.permutations(range(len(node.type.shape)))))
        else:
            starts = [draw(st.integers(0, d - 1)) for d in node.type.shape]
            sizes = [draw(st.integers(1, d - s)) for d, s in zip(node.type.shape, starts, strict=True)]
            node = b.view(node, starts=starts, shape=sizes)
        offset += node.view.offset if node.view else 0
    return node, offset


def byte_set(node: Node, window: Window) -> np.ndarray:
    return addresses(node, Placement(0, window.offset, window.length, window.strides, "view"))


@given(view_pairs())
def test_overlap_is_never_missed_and_lengths_are_exact(pair: tuple[Node, Node, int, int]) -> None:
    first, second, at, other_at = pair
    one, two = Window(first.type, at, first.strides), Window(second.type, other_at, second.strides)
    mine, theirs = byte_set(first, one), byte_set(second, two)
    if np.intersect1d(mine, theirs).size:
        assert one.overlaps(two) and two.overlaps(one)
    assert one.length == mine.max() + 1 - mine.min()
    assert one.is_contiguous == np.array_equal(mine.ravel(), at + np.arange(mine.size))
    same = mine.size == theirs.size and np.array_equal(mine.ravel(), theirs.ravel())
    if one.same_elements(two):
        assert same
    if first.type.shape == second.type.shape and same:
        assert one.same_elements(two)


@given(st.integers(1, 6), st.data())
def test_column_ranges_of_one_row_block_are_told_apart_exactly(rows: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, 12))
    ranges = []
    for _ in range(2):
        start = data.draw(st.integers(0, width - 1))
        ranges.append((start, data.draw(st.integers(1, width - start))))
    windows = [Window(TensorType((rows, n), F32), start * 4, (width * 4, 4)) for start, n in ranges]
    columns = [set(range(start, start + n)) for start, n in ranges]
    assert windows[0].overlaps(windows[1]) == bool(columns[0] & columns[1])


def test_a_window_that_wraps_over_the_row_end_overlaps() -> None:
    """Rows of 8 bytes walked 12 wide: the columns alone would look apart."""
    wide = Window(TensorType((3, 3), F32), 4, (8, 4))
    narrow = Window(TensorType((3, 1), F32), 0, (8, 4))
    assert wide.overlaps(narrow) and narrow.overlaps(wide)


def test_plain_rows_have_gaps_only_between_them() -> None:
    kind = TensorType((3, 2, 4), F32)
    assert Window(kind, 0, (96, 16, 4)).has_plain_rows
    assert not Window(kind, 0, (96, 48, 4)).has_plain_rows
    assert not Window(kind, 0, (32, 4, 8)).has_plain_rows
    assert Window(TensorType((3, 64), Q8A32), 0, (500, 0)).has_plain_rows


def test_block_rows_measure_whole_rows() -> None:
    kind = TensorType((3, 64), Q8A32)
    assert Window(kind, 0, kind.strides).length == kind.nbytes
    assert Window(kind, 0, (1000, 0)).length == 2000 + Q8A32.row_bytes(64)


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        *((0, 1024), (1, 1024), (1024, 1024), (1025, 2048), (2048, 2048), (2049, 4096), (4097, 8192), (8193, 16384)),
        *((16384, 16384), (16385, 32768), (32769, 49152), (49152, 49152), (49153, 65536), (10**9, 1000013824)),
    ],
)
def test_the_ladder(nbytes: int, expected: int) -> None:
    assert class_bytes(nbytes) == expected


@given(st.integers(0, 1 << 40))
def test_a_class_holds_its_request_and_is_its_own_class(nbytes: int) -> None:
    size = class_bytes(nbytes)
    assert nbytes <= size == class_bytes(size)
    assert size == 1024 or size < 2 * nbytes
    assert size <= 1 << 14 or (size - nbytes < 1 << 14 and size % (1 << 14) == 0)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-5 bytes"):
        class_bytes(-5)
