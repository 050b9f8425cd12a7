"""The cell store against a naive model: a dict from (sequence, position) to cell, and a set of free cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minfer_ir.kv import KvError, KvStore, Span
from minfer_ir.kv.spans import free_runs

CELLS = 24
SEQS = st.integers(0, 4)


class Model(RuleBasedStateMachine):
    """`table[seq]` lists a cell per position; `written[seq]` is the set of positions that were stored."""

    def __init__(self) -> None:
        super().__init__()
        self.store = KvStore(CELLS)
        self.table: dict[int, list[int]] = {}
        self.written: dict[int, set[int]] = {}

    def taken(self) -> set[int]:
        return {c for cells in self.table.values() for c in cells}

    def add(self, seq: int, cells: list[int]) -> None:
        self.table[seq], self.written[seq] = cells, set()

    @rule(seq=SEQS, capacity=st.integers(-1, CELLS + 2))
    def reserve(self, seq: int, capacity: int) -> None:
        taken = self.taken()
        starts = [s for s in range(CELLS) if s + capacity <= CELLS and not taken & set(range(s, s + capacity))]
        if seq in self.table or capacity <= 0 or not starts:
            with pytest.raises(KvError, match=f"sequence {seq}"):
                self.store.reserve(seq, capacity)
            return
        found = self.store.reserve(seq, capacity)
        assert found.spans == (Span(starts[0], capacity),) and found.capacity == capacity
        self.add(seq, list(range(starts[0], starts[0] + capacity)))

    @rule(seq=SEQS, spans=st.lists(st.tuples(st.integers(-1, CELLS), st.integers(0, 5)), max_size=4))
    def place(self, seq: int, spans: list[tuple[int, int]]) -> None:
        cells = [c + i for c, n in spans for i in range(n)]
        usable = set(range(CELLS)) - self.taken()
        wanted = [Span(c, n) for c, n in spans]
        if seq in self.table or not spans or not all(n for _, n in spans) or len(set(cells) & usable) < len(cells):
            with pytest.raises(KvError):
                self.store.place(seq, wanted)
            return
        self.store.place(seq, wanted)
        self.add(seq, cells)

    @rule(seq=SEQS)
    def release(self, seq: int) -> None:
        if seq not in self.table:
            with pytest.raises(KvError, match=f"sequence {seq} has no reservation"):
                self.store.release(seq)
            return
        self.store.release(seq)
        del self.table[seq], self.written[seq]

    @rule(seq=SEQS, positions=st.lists(st.integers(-1, CELLS + 2), max_size=6))
    def resolve(self, seq: int, positions: list[int]) -> None:
        cells = self.table.get(seq)
        if cells is None or not all(0 <= p < len(cells) for p in positions):
            with pytest.raises(KvError, match=f"sequence {seq}"):
                self.store.resolve(seq, positions)
            return
        found = self.store.resolve(seq, positions)
        assert found.dtype == np.int32 and found.tolist() == [cells[p] for p in positions]

    @precondition(lambda self: self.table)
    @rule(data=st.data(), count=st.integers(1, 5), skip=st.sampled_from((0, 0, 0, 1, -2)))
    def write(self, data: st.DataObject, count: int, skip: int) -> None:
        seq = data.draw(st.sampled_from(sorted(self.table)))
        first = len(self.written[seq]) + skip
        positions = list(range(first, first + count))
        after = self.written[seq] | set(positions)
        if first < 0 or positions[-1] >= len(self.table[seq]) or after != set(range(len(after))):
            with pytest.raises(KvError, match=f"sequence {seq}"):
                self.store.mark_written(seq, positions)
            return
        self.written[seq] = after
        assert self.store.length_after(seq, positions) == self.store.mark_written(seq, positions) == len(after)

    @precondition(lambda self: self.table)
    @rule(data=st.data(), length=st.integers(-1, 10))
    def truncate(self, data: st.DataObject, length: int) -> None:
        seq = data.draw(st.sampled_from(sorted(self.table)))
        if not 0 <= length <= len(self.written[seq]):
            with pytest.raises(KvError, match=f"can't be cut to {length}"):
                self.store.truncate(seq, length)
            return
        self.store.truncate(seq, length)
        self.written[seq] = {p for p in self.written[seq] if p < length}

    @invariant()
    def agrees(self) -> None:
        assert set(self.store.sequences) == set(self.table)
        for seq, cells in self.table.items():
            assert self.store.length(seq) == len(self.written[seq])
            assert self.store.resolve(seq, range(len(cells))).tolist() == cells
        taken, stats = self.taken(), self.store.stats()
        runs = "".join("x" if c in taken else "." for c in range(CELLS)).split("x")
        assert (stats.reserved, stats.free, stats.sequences) == (len(taken), CELLS - len(taken), len(self.table))
        assert stats.free_runs == sum(bool(r) for r in runs) and stats.largest_free_run == max(map(len, runs))
        assert stats.written == sum(map(len, self.written.values()))


Model.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestKvStoreModel = Model.TestCase


def test_refusals_have_the_numbers() -> None:
    store = KvStore(64)
    store.reserve(1, 20)
    store.reserve(2, 20)
    store.reserve(3, 16)
    store.release(2)
    for call, message in (
        (lambda: store.reserve(4, 21), "no run of 21 free cells for sequence 4: 28 of 64 cells are free.* run is 20"),
        (lambda: store.reserve(1, 1), "sequence 1 already has a reservation of 20 cells"),
        (lambda: store.reserve(4, 0), "sequence 4 asks for 0 cells"),
        (lambda: store.resolve(1, [3, 20]), "sequence 1: position 20 is beyond its reservation of 20 cells"),
        (lambda: store.resolve(1, [64]), "sequence 1: position 64 is beyond the arena of 64 cells"),
        (lambda: store.resolve(1, [-1]), "sequence 1: position -1 is negative"),
        (lambda: store.resolve(2, [0]), "sequence 2 has no reservation"),
        (lambda: store.place(5, [Span(60, 5)]), "cells 60 to 64 aren't in the arena of 64 cells"),
        (lambda: store.place(5, [Span(21, 2), Span(15, 4)]), "cells 15 to 18 for sequence 5 aren't free"),
        (lambda: store.place(5, [Span(21, 4), Span(24, 2)]), "cells 24 to 25 for sequence 5 aren't free"),
        (lambda: store.mark_written(1, [1]), "sequence 1: position 0 isn't written, but 1 would read it"),
        (lambda: store.mark_written(1, [0, 0]), "sequence 1: position 0 comes after 0; rows must ascend"),
        (lambda: store.truncate(1, 1), "sequence 1 has 0 positions and can't be cut to 1"),
        (lambda: KvStore(0), "an arena needs cells, got 0"),
    ):
        with pytest.raises(KvError, match=message):
            call()
    assert store.length(1) == 0 and store.stats().free == 28


def test_a_position_is_not_a_cell() -> None:
    store = KvStore(8)
    store.reserve(7, 3)
    store.reserve(9, 4)
    assert store.resolve(9, np.array([0, 3, 1])).tolist() == [3, 6, 4]


def test_several_spans_resolve_in_their_order() -> None:
    store = KvStore(20)
    store.place(0, [Span(10, 2), Span(4, 3), Span(15, 1)])
    assert store.resolve(0, range(6)).tolist() == [10, 11, 4, 5, 6, 15]
    assert store.resolve(0, []).tolist() == []
    assert store.reserve(1, 4).spans == (Span(0, 4),)


def test_free_runs_lie_between_spans_that_may_overlap() -> None:
    spans = [Span(9, 3), Span(2, 5), Span(3, 2)]
    assert free_runs(spans, 14) == [Span(0, 2), Span(7, 2), Span(12, 2)]
    assert free_runs(spans, 12) == [Span(0, 2), Span(7, 2)] and free_runs([], 3) == [Span(0, 3)]


def test_rewriting_keeps_the_length_and_a_write_may_overlap_the_end() -> None:
    store = KvStore(8)
    store.reserve(0, 8)
    assert store.mark_written(0, range(5)) == 5
    assert store.mark_written(0, [2]) == 5
    assert store.mark_written(0, [3, 4, 5]) == 6
    store.truncate(0, 2)
    assert store.length(0) == 2 and store.mark_written(0, [2]) == 3
