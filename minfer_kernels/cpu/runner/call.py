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
    """A kernel that is called again and again with most of its operands the same; the first is the row's address."""

    def __init__(self, kernel: LoadedKernel) -> None:
        block = np.zeros(len(kernel.operands), np.int64)
        words = [ctypes.c_int64(word) for word in (block.ctypes.data, 0, 1)]
        self._entry = partial(_ENTRY(kernel.address), *words)
        self._words = block.data
        self._index = {operand.name: i for i, operand in enumerate(kernel.operands)}
        self._kept: dict[str, object] = {"kernel": kernel}

    def set(self, **operands: int | NDArray[np.generic]) -> None:
        """Set operands by name; arrays are kept alive."""
        for name, value in operands.items():
            self._kept[name] = value
            self._words[self._index[name]] = value.ctypes.data if isinstance(value, np.ndarray) else value

    def put(self, name: str, value: int) -> None:
        """Set one operand; nothing is kept alive."""
        self._words[self._index[name]] = value

    def run(self, row: int) -> None:
        """Call it."""
        self._words[0] = row
        self._entry()


def word(value: float) -> int:
    """A float32 immediate: its bits, in the low half of a word."""
    return struct.unpack("<I", struct.pack("<f", value))[0]
