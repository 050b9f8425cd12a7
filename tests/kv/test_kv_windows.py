"""Window inputs against the cells that the attention op's reference reads for them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer_ir.kv import (
    WINDOWS,
    KvError,
    KvStore,
    Span,
    causal_window,
    check_grouped,
    map_window,
    narrowest_window,
    span_window,
)
from minfer_ir.ops.attention import window_cells, window_mode


@st.composite
def forwards(draw: st.DrawFn) -> tuple[KvStore, list[int], list[int], dict[int, list[int]]]:
    """Sequences in one to six spans each, some positions written; the rows of a forward; cells by position."""
    slots = draw(st.permutations(range(12)))
    store, cells, seq_ids, positions = KvStore(60), {}, [], []
    at = 0
    for seq in draw(st.permutations(range(3)))[: draw(st.integers(1, 3))]:
        spans = []
        for _ in range(draw(st.integers(1, 4))):
            spans.append(Span(slots[at] * 5, draw(st.integers(1, 5))))
            at += 1
        store.place(seq, spans)
        cells[seq] = [c for s in spans for c in range(s.cell, s.end)]
        written = draw(st.integers(0, len(cells[seq]) - 1))
        store.mark_written(seq, range(written))
        first = draw(st.integers(0, written))
        count = draw(st.integers(1, len(cells[seq]) - first))
        seq_ids += [seq] * count
        positions += range(first, first + count)
    return store, seq_ids, positions, cells


@given(forwards())
def test_every_mode_names_exactly_the_cells_of_the_positions_before(
    forward: tuple[KvStore, list[int], list[int], dict[int, list[int]]],
) -> None:
    store, seq_ids, positions, cells = forward
    expected = [cells[s][: p + 1] for s, p in zip(seq_ids, positions, strict=True)]
    broken = [sum(b != a + 1 for a, b in pairwise(e)) for e in expected]
    fits = {
        "causal": len(set(seq_ids)) == 1 and not any(broken),
        "span": not any(broken),
        "map": max(broken) < 4,
    }
    for mode, make in WINDOWS.items():
        if not fits[mode]:
            with pytest.raises(KvError, match=mode):
                make(store, seq_ids, positions)
            continue
        window = make(store, seq_ids, positions)
        found = window_cells(np.array(positions), window)
        assert window.dtype == np.int32 and [f.tolist() for f in found] == expected
        assert window_mode(window.shape, len(positions)) == mode
    mode, window = narrowest_window(store, seq_ids, positions)
    assert mode == next(m for m in WINDOWS if fits[m])
    assert np.array_equal(window, WINDOWS[mode](store, seq_ids, positions))


def test_shapes_and_values() -> None:
    store = KvStore(30)
    store.reserve(4, 5)
    store.reserve(2, 10)
    store.mark_written(2, range(3))
    assert causal_window(store, [2, 2], [3, 4]).tolist() == [5]
    assert span_window(store, [2, 2, 4], [3, 4, 0]).tolist() == [[5, 9], [5, 10], [0, 1]]
    assert map_window(store, [2, 4], [3, 0]).tolist() == [[5, 4, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]]
    assert span_window(store, [], []).shape == (0, 2) and map_window(store, [], []).shape == (0, 8)


def test_spans_that_touch_are_one_run() -> None:
    store = KvStore(30)
    store.place(0, [Span(3, 2), Span(5, 4), Span(20, 1)])
    store.mark_written(0, range(5))
    assert causal_window(store, [0], [5]).tolist() == [3]
    assert map_window(store, [0, 0], [5, 6]).tolist() == [[3, 6, 0, 0, 0, 0, 0, 0], [3, 6, 20, 1, 0, 0, 0, 0]]


def test_a_window_of_five_runs_is_refused() -> None:
    store = KvStore(30)
    store.place(0, [Span(6 * i, 1) for i in range(5)])
    assert map_window(store, [0] * 4, range(4)).shape == (4, 8)
    with pytest.raises(KvError, match="sequence 0: positions 0 to 4 lie in 5 runs of cells, a map window holds 4"):
        map_window(store, [0] * 5, range(5))
    with pytest.raises(KvError, match="a map window holds 4"):
        narrowest_window(store, [0] * 5, range(5))


def test_causal_is_for_exactly_one_sequence() -> None:
    store = KvStore(30)
    store.reserve(0, 5)
    store.reserve(1, 5)
    with pytest.raises(KvError, match=r"exactly one sequence, got \[0, 1\]"):
        causal_window(store, [0, 1], [0, 0])
    with pytest.raises(KvError, match=r"exactly one sequence, got \[\]"):
        causal_window(store, [], [])


def test_interleaved_rows_are_refused_by_every_mode() -> None:
    assert check_grouped([3, 3, 1, 2, 2]) == [(3, 2), (1, 1), (2, 2)]
    assert check_grouped(np.zeros(0, np.int32)) == []
    store = KvStore(30)
    store.reserve(0, 5)
    store.reserve(1, 5)
    for make in WINDOWS.values():
        with pytest.raises(KvError, match=r"rows of sequence 0 aren't next to each other; .* order \[0, 1, 0\]"):
            make(store, [0, 0, 1, 0], [0, 1, 0, 2])


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([3], "position 2 isn't written, but 3 would read it"),
        ([2, 4], "position 3 isn't written, but 4 would read it"),
        ([2, 2], "position 2 comes after 2"),
        ([1, 0], "position 0 comes after 1"),
        ([9], "position 9 is beyond its reservation of 5 cells"),
        ([30], "position 30 is beyond the arena of 30 cells"),
    ],
)
def test_holes_and_disorder_are_refused(positions: list[int], message: str) -> None:
    store = KvStore(30)
    store.reserve(0, 5)
    store.mark_written(0, [0, 1])
    for make in WINDOWS.values():
        with pytest.raises(KvError, match=message):
            make(store, [0] * len(positions), positions)
    assert store.length(0) == 2


def test_ids_and_positions_of_different_lengths_are_refused() -> None:
    store = KvStore(30)
    store.reserve(0, 5)
    with pytest.raises(KvError, match="2 sequence ids for 1 positions"):
        span_window(store, [0, 0], [0])
