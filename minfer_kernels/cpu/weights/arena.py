"""Memory for weights: slabs that many weights share, aligned so that the system can back them with huge pages.

A decode step reads every weight once, so each 4 KiB page would cost it a TLB miss, and loading a page fault.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

from minfer_ir.formats.base import Bytes

ALIGNMENT = 64
HUGE_PAGE = 1 << 21
SLAB_BYTES = 1 << 26
"""Address space of a slab; what no weight has touched takes no memory."""


class WeightArena:
    """Hands out uninitialized, 64-byte aligned memory that lives as long as the arrays over it."""

    def __init__(self) -> None:
        self._slab: Bytes = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> Bytes:
        """`nbytes` uint8; raises MemoryError when the system has no such piece."""
        room = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        if room > self._slab.nbytes:
            slab = _slab(max(room, SLAB_BYTES))
            if room >= SLAB_BYTES:
                return slab[:nbytes]
            self._slab = slab
        taken, self._slab = self._slab[:nbytes], self._slab[room:]
        return taken


def _slab(nbytes: int) -> Bytes:
    """Whole huge pages of zeros, from the system itself where it takes advice."""
    size = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        return raw[-raw.ctypes.data % ALIGNMENT :][:nbytes]
    try:
        held = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no {nbytes / 2**20:.1f} MiB for weights: {error.strerror}") from error
    raw = np.frombuffer(held, np.uint8)
    start = -raw.ctypes.data % HUGE_PAGE
    with suppress(OSError):  # a system without huge pages is slower, and otherwise the same
        held.madvise(mmap.MADV_HUGEPAGE, start, size)
    return raw[start : start + size]
