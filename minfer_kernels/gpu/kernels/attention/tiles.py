"""Which rows share a tile: the step's rows cut where a window isn't the one before it plus one cell.

So no tile spans two sequences, wherever the batch came from, and a tile's cells are those of its last row's window.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.windows import extends


@triton.jit
def tiles(
    positions, window, rows_at, starts, table, listed,
    MODE: tl.constexpr, TILE: tl.constexpr, SHORT: tl.constexpr, BUCKET: tl.constexpr,
):  # fmt: skip
    """One program. `table` int32: the number of tiles, then (first row, rows) of each, at most TILE rows.

    Rows of runs of at most SHORT rows are in no tile but in `listed`: their number, then the rows, ascending. `starts`
    int32 `[BUCKET + 1]` is scratch.
    """
    at = tl.arange(0, BUCKET)
    n_rows = tl.load(rows_at)
    live = at < n_rows
    begins = live & ~extends(window, positions, at.to(tl.int64), live & (at > 0), MODE)
    run = starts + tl.cumsum(begins.to(tl.int32), 0) - 1
    tl.store(run, at, mask=begins)
    tl.store(starts + tl.sum(begins.to(tl.int32), 0), n_rows)
    tl.debug_barrier()
    first, end = tl.load(run, mask=live, other=0), tl.load(run + 1, mask=live, other=0)
    tiled = live & (end - first > SHORT)
    leads = (tiled & ((at - first) % TILE == 0)).to(tl.int32)
    entry = table + 2 * tl.cumsum(leads, 0) - 1
    tl.store(table, tl.sum(leads, 0))
    tl.store(entry, at, mask=leads > 0)
    tl.store(entry + 1, tl.minimum(end - at, TILE), mask=leads > 0)
    short = (live & ~tiled).to(tl.int32)
    tl.store(listed, tl.sum(short, 0))
    tl.store(listed + tl.cumsum(short, 0), at, mask=short > 0)
