"""Which cells a row attends: the three window modes, each its own compilation of whatever kernel asks.

A row's window is a list of runs of cells, joined in order into logical positions from 0. `first_cells` gives what turns
a position into a cell, as scalars that stay in registers; a causal or a span window is one run.
"""

from __future__ import annotations

import triton
import triton.language as tl

CAUSAL, SPAN, MAP = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
MODES = {"causal": 0, "span": 1, "map": 2}
"""The compile-time mode of each window shape."""

# Constants reach a kernel as Python values.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAssignmentType=false


@triton.jit
def row_length(window, positions, row, MODE: tl.constexpr):
    """Logical positions that `row` (int64) reads."""
    if MODE == CAUSAL:
        length = tl.load(positions + row) + 1
    elif MODE == SPAN:
        length = tl.load(window + row * 2 + 1) - tl.load(window + row * 2)
    else:
        runs = window + row * 8 + 1
        length = tl.load(runs) + tl.load(runs + 2) + tl.load(runs + 4) + tl.load(runs + 6)
    return tl.maximum(length, 0)


@triton.jit
def row_runs(window, row, MODE: tl.constexpr):
    """What `block_cells` needs of a row's window: of each run its cell less its first position, and where it ends."""
    if MODE == CAUSAL:
        return (tl.load(window),)
    elif MODE == SPAN:
        return (tl.load(window + row * 2),)
    else:
        runs = window + row * 8
        end0 = tl.load(runs + 1)
        end1 = end0 + tl.load(runs + 3)
        end2 = end1 + tl.load(runs + 5)
        shift1, shift2, shift3 = tl.load(runs + 2) - end0, tl.load(runs + 4) - end1, tl.load(runs + 6) - end2
        return tl.load(runs), end0, shift1, end1, shift2, end2, shift3


@triton.jit
def block_cells(runs, start, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """Cells of the positions `start` to `start` + BLOCK; what lies beyond the row's length names any cell.

    A map finds the run of the first position once, and walks only where that run ends within the block.
    """
    at = start + tl.arange(0, BLOCK)
    if MODE != MAP:
        cells = runs[0] + at
    else:
        # The last run needs no end: nobody reads beyond it.
        end = tl.where(start < runs[1], runs[1], tl.where(start < runs[3], runs[3], runs[5]))
        if (start >= runs[5]) | (start + BLOCK <= end):  # noqa: SIM108 a branch, where an expression would do both
            cells = at + _shift(runs, start)
        else:
            cells = at + _shift(runs, at)
    return cells


@triton.jit
def _shift(runs, at):
    shift = tl.where(at < runs[5], runs[4], runs[6])
    return tl.where(at < runs[1], runs[0], tl.where(at < runs[3], runs[2], shift))


@triton.jit
def extends(window, positions, row, valid, MODE: tl.constexpr):
    """Whether the window of each `row` (int64, `valid` where it and the one before exist) is that before plus one cell.

    Only then may both share a tile, which reads the cells of its last row's window.
    """
    if MODE == CAUSAL:
        now = tl.load(positions + row, mask=valid, other=0)
        longer = now == tl.load(positions + row - 1, mask=valid, other=0) + 1
    elif MODE == SPAN:
        own, before = window + row * 2, window + row * 2 - 2
        longer = tl.load(own, mask=valid, other=0) == tl.load(before, mask=valid, other=0)
        longer &= tl.load(own + 1, mask=valid, other=0) == tl.load(before + 1, mask=valid, other=0) + 1
    else:
        own, before = window + row * 8, window + row * 8 - 8
        grown, longer = (row * 0).to(tl.int32), valid
        for i in tl.static_range(4):
            length = tl.load(own + 2 * i + 1, mask=valid, other=0)
            shorter = tl.load(before + 2 * i + 1, mask=valid, other=0)
            cell, same = tl.load(own + 2 * i, mask=valid, other=0), tl.load(before + 2 * i, mask=valid, other=0)
            # Behind the run that grew there must be none: it would move.
            longer &= ((cell == same) | (shorter == 0)) & (length >= shorter) & ((grown == 0) | (length == 0))
            grown += length - shorter
        longer &= grown == 1
    return valid & longer
