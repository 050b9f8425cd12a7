"""Calling one kernel, outside of a tape, again and again."""

from __future__ import annotations

import ctypes
import struct
from functools import partial

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.library import LoadedKernel

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Call:
    """A kernel that is called again and again with most of its operands the same; the first is the row's address.

    `entry()` calls it with its operands as they stand in `words`, int64.
    """

    def __init__(self, kernel: LoadedKernel) -> None:
        block = np.zeros(len(kernel.operands), np.int64)
        words = [ctypes.c_int64(word) for word in (block.ctypes.data, 0, 1)]
        self.entry = partial(_ENTRY(kernel.address), *words)
        self.words = block.data
        self._index = {operand.name: i for i, operand in enumerate(kernel.operands)}
        self._kept: dict[str, object] = {"kernel": kernel}

    def set(self, **operands: int | NDArray[np.generic]) -> None:
        """Set operands by name; arrays are kept alive."""
        for name, value in operands.items():
            self._kept[name] = value
            self.words[self._index[name]] = value.ctypes.data if isinstance(value, np.ndarray) else value

    def put(self, name: str, value: int) -> None:
        """Set one operand; nothing is kept alive."""
        self.words[self._index[name]] = value

    def index(self, name: str) -> int:
        """Where in `words` an operand stands."""
        return self._index[name]

    def run(self, row: int) -> None:
        """Call it."""
        self.words[0] = row
        self.entry()


def word(value: float) -> int:
    """A float32 immediate: its bits, in the low half of a word."""
    return struct.unpack("<I", struct.pack("<f", value))[0]
