"""The cell store: which cells of the arena belong to which sequence. Integers only; no tensor is touched.

The same cell number addresses the K and V regions of every layer. Positions are relative to their sequence and nothing
assumes that a position is a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer_ir.kv.spans import Cells, KvError, Span, cells_at, free_runs, span_cells

Ints = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Reservation:
    """The cells of one sequence: position p lies p cells into the concatenated spans."""

    seq_id: int
    spans: tuple[Span, ...]

    @property
    def capacity(self) -> int:
        """Positions that the sequence can have."""
        return span_cells(self.spans)


@dataclass(frozen=True, slots=True)
class ArenaStats:
    """Counts of cells; `free_runs` greater than one means that the free cells are fragmented."""

    n_cells: int
    reserved: int
    written: int
    free_runs: int
    largest_free_run: int
    sequences: int

    @property
    def free(self) -> int:
        """Cells that no sequence has reserved."""
        return self.n_cells - self.reserved


class KvStore:
    """An arena of `n_cells` cells shared by sequences.

    A sequence reserves cells, its rows are stored at the cells that `resolve` gives, and `mark_written` extends its
    length. Every method refuses with a KvError and changes nothing when it does.
    """

    def __init__(self, n_cells: int) -> None:
        if n_cells <= 0:
            raise KvError(f"an arena needs cells, got {n_cells}")
        self.n_cells = n_cells
        self._reservations: dict[int, Reservation] = {}
        self._lengths: dict[int, int] = {}

    @property
    def sequences(self) -> tuple[int, ...]:
        """Ids of the sequences that hold a reservation, in order of reservation."""
        return tuple(self._reservations)

    def reserve(self, seq_id: int, capacity: int) -> Reservation:
        """The first run of `capacity` free cells; refused when no run is that long or the sequence has one already."""
        self._refuse_second(seq_id)
        if capacity <= 0:
            raise KvError(f"sequence {seq_id} asks for {capacity} cells")
        run = next((r for r in self._free_runs() if r.length >= capacity), None)
        if run is None:
            stats = self.stats()
            raise KvError(
                f"no run of {capacity} free cells for sequence {seq_id}: {stats.free} of {self.n_cells} cells are "
                f"free, the longest run is {stats.largest_free_run}"
            )
        return self.place(seq_id, (Span(run.cell, capacity),))

    def place(self, seq_id: int, spans: Sequence[Span]) -> Reservation:
        """Reserve exactly these cells; refused when one is outside of the arena, taken, or named twice."""
        self._refuse_second(seq_id)
        if not spans or any(s.length <= 0 for s in spans):
            raise KvError(f"sequence {seq_id} asks for empty spans: {list(spans)}")
        for i, span in enumerate(spans):
            if span.cell < 0 or span.end > self.n_cells:
                raise KvError(f"cells {span.cell} to {span.end - 1} aren't in the arena of {self.n_cells} cells")
            inside = any(r.cell <= span.cell and span.end <= r.end for r in self._free_runs())
            if not inside or any(span.cell < o.end and o.cell < span.end for o in spans[:i]):
                raise KvError(f"cells {span.cell} to {span.end - 1} for sequence {seq_id} aren't free")
        self._reservations[seq_id] = Reservation(seq_id, tuple(spans))
        self._lengths[seq_id] = 0
        return self._reservations[seq_id]

    def release(self, seq_id: int) -> None:
        """Give the sequence's cells back."""
        self.reservation(seq_id)
        del self._reservations[seq_id], self._lengths[seq_id]

    def reservation(self, seq_id: int) -> Reservation:
        """The sequence's reservation; refused when it has none."""
        if seq_id not in self._reservations:
            raise KvError(f"sequence {seq_id} has no reservation")
        return self._reservations[seq_id]

    def length(self, seq_id: int) -> int:
        """Positions written so far: 0 to length - 1."""
        self.reservation(seq_id)
        return self._lengths[seq_id]

    def resolve(self, seq_id: int, positions: Ints) -> Cells:
        """The cell of every position, int32 `[len(positions)]`.

        Refused for a position beyond the arena, and for one beyond the sequence's reservation.
        """
        wanted = self._checked(seq_id, positions)
        return cells_at(self._reservations[seq_id].spans, wanted)

    def length_after(self, seq_id: int, positions: Ints) -> int:
        """The length once rows at `positions` are stored, without storing them.

        Refused when the positions don't ascend, or would leave a position before them unwritten.
        """
        length = self.length(seq_id)
        previous = -1
        for position in self._checked(seq_id, positions).tolist():
            if position <= previous:
                raise KvError(f"sequence {seq_id}: position {position} comes after {previous}; rows must ascend")
            if position > length:
                raise KvError(f"sequence {seq_id}: position {length} isn't written, but {position} would read it")
            previous = position
            length = max(length, position + 1)
        return length

    def next_row(self, seq_id: int) -> tuple[int, int] | None:
        """(cell of position 0, length) of a sequence with all cells in one run and room for a row, else None.

        A row at position `length` then lies `length` cells behind the first and reads the run up to itself.
        """
        reservation = self._reservations.get(seq_id)
        if reservation is None or len(reservation.spans) != 1:
            return None
        run, length = reservation.spans[0], self._lengths[seq_id]
        return (run.cell, length) if length < run.length else None

    def mark_written(self, seq_id: int, positions: Ints) -> int:
        """Rows at `positions` were stored; returns the new length.

        Writing an earlier position again keeps the length: whoever rewrites history truncates first. Refused as in
        `length_after`.
        """
        self._lengths[seq_id] = self.length_after(seq_id, positions)
        return self._lengths[seq_id]

    def extend(self, seq_id: int, length: int) -> None:
        """Rows up to position `length` - 1 were stored, as `length_after` foretold before the step.

        `mark_written` without the checks, which cost most when a step has just emptied the caches.
        """
        self._lengths[seq_id] = length

    def truncate(self, seq_id: int, length: int) -> None:
        """Forget the positions from `length` on; the reservation stays."""
        if not 0 <= length <= self.length(seq_id):
            raise KvError(f"sequence {seq_id} has {self.length(seq_id)} positions and can't be cut to {length}")
        self._lengths[seq_id] = length

    def stats(self) -> ArenaStats:
        """Counts of the arena."""
        free = self._free_runs()
        reserved = self.n_cells - span_cells(free)
        longest = max((r.length for r in free), default=0)
        return ArenaStats(
            self.n_cells, reserved, sum(self._lengths.values()), len(free), longest, len(self._reservations)
        )

    def _checked(self, seq_id: int, positions: Ints) -> NDArray[np.int64]:
        """The positions as an array; refused for one outside of the sequence's reservation."""
        capacity = self.reservation(seq_id).capacity
        wanted = np.asarray(positions, np.int64).reshape(-1)
        if len(wanted) == 1 and 0 <= wanted.item() < capacity:
            return wanted
        for odd in wanted[(wanted < 0) | (wanted >= capacity)][:1]:
            if odd < 0:
                raise KvError(f"sequence {seq_id}: position {odd} is negative")
            if odd >= self.n_cells:
                raise KvError(f"sequence {seq_id}: position {odd} is beyond the arena of {self.n_cells} cells")
            raise KvError(f"sequence {seq_id}: position {odd} is beyond its reservation of {capacity} cells")
        return wanted

    def _refuse_second(self, seq_id: int) -> None:
        if seq_id in self._reservations:
            raise KvError(f"sequence {seq_id} already has a reservation of {self.reservation(seq_id).capacity} cells")

    def _free_runs(self) -> list[Span]:
        return free_runs((s for r in self._reservations.values() for s in r.spans), self.n_cells)
