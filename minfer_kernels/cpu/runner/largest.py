"""Looking for the largest logits natively: what a sampler asks for after every step."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.library import KernelLibrary

Row = NDArray[np.float32]
MOST = 1024
"""The largest k of `top_k`."""
KERNELS = ("select.argmax", "select.top_k")
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_ROOM = 256


class Largest:
    """The argmax or the k largest of the first `n` elements of a row, for one caller at a time.

    Rows are contiguous float32 of at least `n` elements.
    """

    def __init__(self, library: KernelLibrary, n: int, k: int = 1) -> None:
        if not 1 <= k <= MOST:
            raise ValueError(f"k is {k}, expected 1 to {MOST}")
        self._kernels = library.load(KERNELS)
        capacity = max(4 * k, _ROOM)
        self._n = n
        self._row: Row | None = None
        self._values = np.zeros(capacity, np.float32)
        self._ids = np.zeros(capacity, np.int64)
        self._k_values, self._k_ids = self._values[:k], self._ids[:k]
        self._out = np.zeros(1, np.int64)
        values, ids, out = (a.ctypes.data for a in (self._values, self._ids, self._out))
        self._found = self._out.data
        self._argmax, self._argmax_block = self._prepared("select.argmax", n=n, out=out)
        self._top_k, self._top_k_block = self._prepared(
            "select.top_k", n=n, k=k, capacity=capacity, values=values, ids=ids, out=out
        )

    def argmax(self, row: Row) -> int:
        """The lowest id of the largest element; -1 when one is NaN or +inf, or all are -inf."""
        self._look_at(row)
        self._argmax()
        return self._found[0]

    def top_k(self, row: Row) -> tuple[NDArray[np.int64], Row]:
        """Ids, ascending, and values of the k largest above -inf; at the last places the lowest ids of equal ones.

        None at all when an element is NaN or +inf. The arrays are valid until the next call.
        """
        self._look_at(row)
        self._top_k()
        count = max(self._found[0], 0)
        return self._ids[:count], self._values[:count]

    def _prepared(self, name: str, **operands: int) -> tuple[Callable[[], None], NDArray[np.int64]]:
        """A call of the kernel without arguments, and the block of operands that it keeps."""
        kernel = self._kernels[name]
        block = np.array([0, *(operands[o.name] for o in kernel.operands[1:])], np.int64)
        entry, words = _ENTRY(kernel.address), [ctypes.c_int64(word) for word in (block.ctypes.data, 0, 1)]
        return partial(entry, *words), block

    def _look_at(self, row: Row) -> None:
        # Decoding reads the same window step after step, and asking numpy for an address costs as much as the kernel.
        if row is self._row:
            return
        if row.dtype != np.float32 or not row.flags.c_contiguous or row.ndim != 1 or row.size < self._n:
            raise ValueError(f"expected {self._n} contiguous float32, got {row.dtype} of shape {row.shape}")
        self._argmax_block[0] = self._top_k_block[0] = row.ctypes.data
        self._row = row
