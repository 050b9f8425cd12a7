"""Runs of cells. A sequence's address space is a list of them: position p lies p cells into their concatenation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int32]


class KvError(ValueError):
    """The cell store can't do what was asked; the message has the actual numbers."""


@dataclass(frozen=True, slots=True)
class Span:
    """`length` cells from `cell` on."""

    cell: int
    length: int

    @property
    def end(self) -> int:
        """The cell after the last."""
        return self.cell + self.length


def span_cells(spans: Sequence[Span]) -> int:
    """Cells in all spans."""
    return sum(s.length for s in spans)


def cells_at(spans: Sequence[Span], positions: NDArray[np.int64]) -> Cells:
    """The cell of every position, int32; positions must lie inside the spans."""
    if len(spans) == 1:
        return (positions + spans[0].cell).astype(np.int32)
    ends = np.cumsum([s.length for s in spans], dtype=np.int64)
    shifts = np.array([s.cell for s in spans], np.int64) - (ends - [s.length for s in spans])
    return (positions + shifts[np.searchsorted(ends, positions, side="right")]).astype(np.int32)


def leading_runs(spans: Sequence[Span], length: int) -> tuple[Span, ...]:
    """The cells of positions 0 to length - 1 as few runs as possible: spans that touch are joined."""
    runs: list[Span] = []
    for span in spans:
        taken = min(span.length, length)
        if taken <= 0:
            break
        length -= taken
        if runs and runs[-1].end == span.cell:
            runs[-1] = Span(runs[-1].cell, runs[-1].length + taken)
        else:
            runs.append(Span(span.cell, taken))
    return tuple(runs)


def free_runs(spans: Iterable[Span], n_cells: int) -> list[Span]:
    """The runs of cells that no span covers, ascending."""
    free: list[Span] = []
    at = 0
    for span in sorted(spans, key=lambda s: s.cell):
        if span.cell > at:
            free.append(Span(at, span.cell - at))
        at = max(at, span.end)
    return [*free, Span(at, n_cells - at)] if at < n_cells else free
