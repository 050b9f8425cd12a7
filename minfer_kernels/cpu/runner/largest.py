"""Looking at a row of logits natively: what a sampler asks for after every step."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.call import Call, word
from minfer_kernels.cpu.runner.chooser import MOST as MOST_CHOSEN
from minfer_kernels.cpu.runner.chooser import Chooser
from minfer_kernels.cpu.runner.penalties import Penalties

Row = NDArray[np.float32]
Ids = NDArray[np.int64]
Mask = NDArray[np.uint32]
MOST = 1024
"""The largest k of `top_k`."""
CHUNK = 64
"""Elements whose weights `masses` sums together."""
_ROOM = 256


class Largest:
    """A look at the first `n` elements of a row, for one caller at a time.

    Rows are contiguous float32 of at least `n` elements. Arrays that come back are valid until the next call.
    """

    def __init__(self, library: KernelLibrary, n: int, k: int = 1) -> None:
        if not 1 <= k <= MOST:
            raise ValueError(f"k is {k}, expected 1 to {MOST}")
        self._library, self._n, self._k = library, n, k
        self._row: Row | None = None
        self._at = 0
        self._mask: Mask | None = None
        self._out = np.zeros(1, np.int64)
        self._found = self._out.data

    def argmax(self, row: Row, mask: Mask | None = None) -> int:
        """The lowest id of the largest element; -1 when one is NaN or +inf, or all are -inf.

        Of those alone whose bit in the mask is set, where there is one.
        """
        self._argmax.put("mask", 0 if mask is None else self._words(mask).ctypes.data)
        self._argmax.run(self._address(row))
        return self._found[0]

    def top_k(self, row: Row) -> tuple[NDArray[np.int64], Row] | None:
        """Ids, ascending, and values of the k largest above -inf; at the last places the lowest ids of equal ones.

        None when an element is NaN or +inf.
        """
        call, ids, values = self._top_k
        call.run(self._address(row))
        count = self._found[0]
        return None if count < 0 else (ids[:count], values[:count])

    def above(self, row: Row, floor: float) -> tuple[NDArray[np.int64], Row]:
        """Ids, ascending, and values of the elements above `floor`, a float32."""
        call, ids, values = self._above
        call.set(floor=word(floor))
        call.run(self._address(row))
        count = self._found[0]
        return ids[:count], values[:count]

    def masses(self, row: Row, top: float, scale: float) -> Row:
        """Sums of exp((x - top) * scale), float32, by chunks of CHUNK elements."""
        call, sums = self._masses
        call.set(top=word(top), scale=word(scale))
        call.run(self._address(row))
        return sums

    def masked(self, row: Row, mask: Mask, out: Row) -> None:
        """The row, with -inf added where the mask has no bit: NaN and +inf show there too, as NaN."""
        call = self._masked
        call.set(mask=self._words(mask), out=self._checked(out))
        call.run(self._address(row))

    def chooser(
        self, *, k: int, whole: bool, share: int, lowest: float, scale: float, seed: int, biases: tuple[Ids, Row],
        last: int, repeat: float, presence: float, frequency: float
    ) -> Chooser | None:  # fmt: skip
        """What chooses from the first n elements in one call, as Chooser says; None where k is too many."""
        if k > MOST_CHOSEN:
            return None
        return Chooser(
            self._library, self._n, k=k, whole=whole, share=share, lowest=lowest, scale=scale, seed=seed, biases=biases,
            last=last, repeat=repeat, presence=presence, frequency=frequency
        )  # fmt: skip

    def penalties(self, repeat: float, presence: float, frequency: float) -> Penalties:
        """What changes the first n logits of a row by the tokens that came before."""
        return Penalties(self._library, self._n, repeat, presence, frequency)

    @cached_property
    def _argmax(self) -> Call:
        (call,) = self._calls("select.argmax")
        call.set(n=self._n, out=self._out)
        return call

    @cached_property
    def _top_k(self) -> tuple[Call, NDArray[np.int64], Row]:
        (call,) = self._calls("select.top_k")
        capacity = max(4 * self._k, _ROOM)
        ids, values = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
        call.set(n=self._n, k=self._k, capacity=capacity, values=values, ids=ids, out=self._out)
        return call, ids, values

    @cached_property
    def _above(self) -> tuple[Call, NDArray[np.int64], Row]:
        (call,) = self._calls("select.above")
        ids, values = np.empty(self._n, np.int64), np.empty(self._n, np.float32)
        call.set(n=self._n, ids=ids, values=values, out=self._out)
        return call, ids, values

    @cached_property
    def _masses(self) -> tuple[Call, Row]:
        (call,) = self._calls("select.masses")
        sums = np.empty(-(-self._n // CHUNK), np.float32)
        call.set(n=self._n, out=sums)
        return call, sums

    @cached_property
    def _masked(self) -> Call:
        (call,) = self._calls("select.masked")
        call.set(n=self._n)
        return call

    def _calls(self, *names: str) -> list[Call]:
        kernels = self._library.load(names)
        return [Call(kernels[name]) for name in names]

    def _words(self, mask: Mask) -> Mask:
        """The mask as kernels read it; it is kept until the next."""
        self._mask = words = np.ascontiguousarray(mask, np.uint32)
        if 32 * words.size < self._n:
            raise ValueError(f"the mask has {words.size} words, fewer than {self._n} elements take")
        return words

    def _address(self, row: Row) -> int:
        # Decoding reads the same window step after step, and asking numpy for an address costs as much as the kernel.
        if row is not self._row:
            self._at, self._row = self._checked(row).ctypes.data, row
        return self._at

    def _checked(self, row: Row) -> Row:
        if row.dtype != np.float32 or not row.flags.c_contiguous or row.ndim != 1 or row.size < self._n:
            raise ValueError(f"expected {self._n} contiguous float32, got {row.dtype} of shape {row.shape}")
        return row
