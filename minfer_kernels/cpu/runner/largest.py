"""Looking at a row of logits natively: what a sampler asks for after every step."""

from __future__ import annotations

import ctypes
import struct
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.library import KernelLibrary, LoadedKernel

Row = NDArray[np.float32]
MOST = 1024
"""The largest k of `top_k`."""
CHUNK = 64
"""Elements whose weights `masses` sums together."""
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_ROOM = 256


class Largest:
    """A look at the first `n` elements of a row, for one caller at a time.

    Rows are contiguous float32 of at least `n` elements. Arrays that come back are valid until the next call.
    """

    def __init__(self, library: KernelLibrary, n: int, k: int = 1) -> None:
        if not 1 <= k <= MOST:
            raise ValueError(f"k is {k}, expected 1 to {MOST}")
        self._library, self._n = library, n
        self._row: Row | None = None
        self._at = 0
        self._out = np.zeros(1, np.int64)
        self._found = self._out.data
        capacity = max(4 * k, _ROOM)
        self._values, self._ids = np.zeros(capacity, np.float32), np.zeros(capacity, np.int64)
        self._argmax, self._top_k = self._calls("select.argmax", "select.top_k")
        self._argmax.set(n=n, out=self._out)
        self._top_k.set(n=n, k=k, capacity=capacity, values=self._values, ids=self._ids, out=self._out)

    def argmax(self, row: Row) -> int:
        """The lowest id of the largest element; -1 when one is NaN or +inf, or all are -inf."""
        self._argmax.run(self._address(row))
        return self._found[0]

    def top_k(self, row: Row) -> tuple[NDArray[np.int64], Row] | None:
        """Ids, ascending, and values of the k largest above -inf; at the last places the lowest ids of equal ones.

        None when an element is NaN or +inf.
        """
        self._top_k.run(self._address(row))
        count = self._found[0]
        return None if count < 0 else (self._ids[:count], self._values[:count])

    def above(self, row: Row, floor: float) -> tuple[NDArray[np.int64], Row]:
        """Ids, ascending, and values of the elements above `floor`, a float32."""
        call, ids, values = self._above
        call.set(floor=_word(floor))
        call.run(self._address(row))
        count = self._found[0]
        return ids[:count], values[:count]

    def masses(self, row: Row, top: float, scale: float) -> Row:
        """Sums of exp((x - top) * scale), float32, by chunks of CHUNK elements."""
        call, sums = self._masses
        call.set(top=_word(top), scale=_word(scale))
        call.run(self._address(row))
        return sums

    def masked(self, row: Row, mask: NDArray[np.uint32], out: Row) -> None:
        """The row, with -inf added where the mask has no bit: NaN and +inf show there too, as NaN."""
        words = np.ascontiguousarray(mask, np.uint32)
        if 32 * words.size < self._n:
            raise ValueError(f"the mask has {words.size} words, fewer than {self._n} elements take")
        call = self._masked
        call.set(mask=words, out=self._checked(out))
        call.run(self._address(row))

    @cached_property
    def _above(self) -> tuple[_Call, NDArray[np.int64], Row]:
        (call,) = self._calls("select.above")
        ids, values = np.empty(self._n, np.int64), np.empty(self._n, np.float32)
        call.set(n=self._n, ids=ids, values=values, out=self._out)
        return call, ids, values

    @cached_property
    def _masses(self) -> tuple[_Call, Row]:
        (call,) = self._calls("select.masses")
        sums = np.empty(-(-self._n // CHUNK), np.float32)
        call.set(n=self._n, out=sums)
        return call, sums

    @cached_property
    def _masked(self) -> _Call:
        (call,) = self._calls("select.masked")
        call.set(n=self._n)
        return call

    def _calls(self, *names: str) -> list[_Call]:
        kernels = self._library.load(names)
        return [_Call(kernels[name]) for name in names]

    def _address(self, row: Row) -> int:
        # Decoding reads the same window step after step, and asking numpy for an address costs as much as the kernel.
        if row is not self._row:
            self._at, self._row = self._checked(row).ctypes.data, row
        return self._at

    def _checked(self, row: Row) -> Row:
        if row.dtype != np.float32 or not row.flags.c_contiguous or row.ndim != 1 or row.size < self._n:
            raise ValueError(f"expected {self._n} contiguous float32, got {row.dtype} of shape {row.shape}")
        return row


class _Call:
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

    def run(self, row: int) -> None:
        """Call it."""
        self._words[0] = row
        self._entry()


def _word(value: float) -> int:
    """A float32 immediate: its bits, in the low half of a word."""
    return struct.unpack("<I", struct.pack("<f", value))[0]
