"""How work is split over threads: contiguous, in whole items, so that no result depends on who computes it."""

from __future__ import annotations

from minfer_kernels.cpu.simd import inline

# Columns of an elementwise work item: with few rows, threads share a row in pieces of this many elements.
COLUMNS = 512


@inline
def first_item(items: int, tid: int, n_threads: int) -> int:
    """The first of thread tid's items; `first_item(items, tid + 1, n_threads)` ends them."""
    return items * tid // n_threads


@inline
def ceil_div(x: int, y: int) -> int:
    """x / y rounded up, for x >= 0 and y > 0."""
    return (x + y - 1) // y
