"""Memory for weights: slabs that many weights share, aligned so that the system can back them with huge pages.

A decode step reads every weight once, so each 4 KiB page would cost it a TLB miss, and loading a page fault. Where
the system must first find the memory (a virtual machine asks its host), that takes longer than packing: 1 to 3 ms per
MB were measured. So what is expected to come is backed beforehand, on a thread of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from contextlib import suppress

import numpy as np

from minfer_ir.formats.base import Bytes

ALIGNMENT = 64
HUGE_PAGE = 1 << 21
SLAB_BYTES = 1 << 26
"""Address space of a slab; what no weight has touched takes no memory."""
BACKED_AT_ONCE = 1 << 23
_MADV_POPULATE_WRITE = 23


class WeightArena:
    """Hands out uninitialized, 64-byte aligned memory that lives as long as the arrays over it."""

    def __init__(self) -> None:
        self._slab: Bytes = np.empty(0, np.uint8)
        self._enough = threading.Event()
        self._backing: threading.Thread | None = None

    def expect(self, nbytes: int) -> None:
        """Begin to back `nbytes`, which will be asked for soon; a system that can't do that does nothing."""
        if sys.platform != "linux" or nbytes <= 0 or self._backing is not None:
            return
        self._slab = _slab(nbytes)
        job = (self._slab, self._enough)
        self._backing = threading.Thread(target=_back, args=job, name="minfer-memory", daemon=True)
        self._backing.start()

    def settle(self) -> None:
        """End what `expect` began: everything that was expected has come."""
        self._enough.set()
        if self._backing is not None:
            self._backing.join()

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


def _back(slab: Bytes, enough: threading.Event) -> None:
    """Have the system back the slab, piece after piece; the first refusal ends it."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start in range(0, slab.nbytes, BACKED_AT_ONCE):
        size = min(BACKED_AT_ONCE, slab.nbytes - start)
        if enough.is_set() or madvise(slab.ctypes.data + start, size, _MADV_POPULATE_WRITE):
            return


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
