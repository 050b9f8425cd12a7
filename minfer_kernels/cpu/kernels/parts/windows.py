"""Attention windows: which cell holds a row's logical position, in three encodings that agree.

Every mode gives four functions of (window, positions, row, ...): `length`, how many logical positions the row
attends; `cell`, the cell of a logical position; `run_left`, for how many positions from there cells follow one
another; and `shares`, whether two rows resolve the positions they have in common to the same cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minfer_kernels.cpu.simd import inline, load_i32

MAP_RUNS = 4


class Window(NamedTuple):
    """The functions of one mode."""

    length: Callable[..., Any]
    cell: Callable[..., Any]
    run_left: Callable[..., Any]
    shares: Callable[..., Any]


def window_functions(mode: str) -> Window:
    """The functions of `causal`, `span` or `map`."""
    return {"causal": CAUSAL, "span": SPAN, "map": MAP}[mode]


@inline
def causal_length(_window: int, positions: int, row: int) -> int:
    """Positions 0 to the row's own."""
    return load_i32(positions + 4 * row) + 1


@inline
def causal_cell(window: int, _row: int, position: int) -> int:
    """`window[0]` is the cell of position 0."""
    return load_i32(window) + position


@inline
def causal_run_left(_window: int, positions: int, row: int, position: int) -> int:
    """All of them."""
    return causal_length(_window, positions, row) - position


@inline
def causal_shares(_window: int, _row: int, _other: int) -> bool:
    """One base for all rows."""
    return True


@inline
def span_length(window: int, _positions: int, row: int) -> int:
    """`window[row]` is (lo, hi); an inverted span is empty."""
    return load_i32(window + 8 * row + 4) - load_i32(window + 8 * row)


@inline
def span_cell(window: int, row: int, position: int) -> int:
    """Cells from lo."""
    return load_i32(window + 8 * row) + position


@inline
def span_run_left(window: int, positions: int, row: int, position: int) -> int:
    """All of them."""
    return span_length(window, positions, row) - position


@inline
def span_shares(window: int, row: int, other: int) -> bool:
    """The same lo."""
    return load_i32(window + 8 * row) == load_i32(window + 8 * other)


@inline
def map_length(window: int, _positions: int, row: int) -> int:
    """`window[row]` is four (cell, length) runs, joined."""
    runs = window + 8 * MAP_RUNS * row
    return load_i32(runs + 4) + load_i32(runs + 12) + load_i32(runs + 20) + load_i32(runs + 28)


@inline
def map_cell(window: int, row: int, position: int) -> int:
    """Walk the runs to the one that holds the position."""
    run = window + 8 * MAP_RUNS * row
    left = position
    for _ in range(MAP_RUNS - 1):
        if left < load_i32(run + 4):
            break
        left -= load_i32(run + 4)
        run += 8
    return load_i32(run) + left


@inline
def map_run_left(window: int, _positions: int, row: int, position: int) -> int:
    """To the end of the run that holds the position."""
    run = window + 8 * MAP_RUNS * row
    left = position
    for _ in range(MAP_RUNS - 1):
        if left < load_i32(run + 4):
            break
        left -= load_i32(run + 4)
        run += 8
    return load_i32(run + 4) - left


@inline
def map_shares(window: int, row: int, other: int) -> bool:
    """Equal runs up to one that differs in length, where the shorter row ends."""
    a, b = window + 8 * MAP_RUNS * row, window + 8 * MAP_RUNS * other
    equal = 0
    while equal < MAP_RUNS:
        at = 8 * equal
        if load_i32(a + at) != load_i32(b + at) or load_i32(a + at + 4) != load_i32(b + at + 4):
            break
        equal += 1
    if equal == MAP_RUNS:
        return True
    at = 8 * equal
    a_length, b_length = load_i32(a + at + 4), load_i32(b + at + 4)
    shorter = a if a_length < b_length else b
    after = 0
    for i in range(equal + 1, MAP_RUNS):
        after += load_i32(shorter + 8 * i + 4)
    same_start = load_i32(a + at) == load_i32(b + at) or a_length == 0 or b_length == 0
    return same_start and a_length != b_length and after == 0


CAUSAL = Window(causal_length, causal_cell, causal_run_left, causal_shares)
SPAN = Window(span_length, span_cell, span_run_left, span_shares)
MAP = Window(map_length, map_cell, map_run_left, map_shares)


def row_sharing(functions: Window) -> tuple[Callable[..., int], Callable[..., int]]:
    """Which rows of a tile resolve the positions they have in common to the same cells."""
    length, _, _, shares = functions

    @inline
    def longest_sharing(window: int, positions: int, row: int, stop: int) -> int:
        """Of rows [row, stop) that share their cells, the one that attends the most."""
        longest = row
        for other in range(row + 1, stop):
            if length(window, positions, other) > length(window, positions, longest):
                longest = other
        return longest

    @inline
    def sharing_end(window: int, positions: int, row: int, end: int) -> int:
        """The end of the rows from `row` on that share their cells with all before them."""
        longest, stop = row, row + 1
        while stop < end and shares(window, longest, stop):
            if length(window, positions, stop) > length(window, positions, longest):
                longest = stop
            stop += 1
        return stop

    return longest_sharing, sharing_end
