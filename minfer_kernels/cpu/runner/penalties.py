"""Changing the logits of tokens that came before natively, and changing them back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.call import Call, word

Row = NDArray[np.float32]
Ids = NDArray[np.int64]


class Penalties:
    """Penalties on the first `n` logits of a row, in place, float32 throughout."""

    def __init__(self, library: KernelLibrary, n: int, repeat: float, presence: float, frequency: float) -> None:
        kernels = library.load(("penalize.penalize", "penalize.restore"))
        self._penalize, self._restore = Call(kernels["penalize.penalize"]), Call(kernels["penalize.restore"])
        self._penalize.set(n=n, repeat=word(repeat), presence=word(presence), frequency=word(frequency))
        self._restore.set(n=n)
        self._n = n
        self._tokens: Ids | None = None
        self._distinct: Ids | None = None
        self._at = 0
        self._row: Row | None = None
        self._row_at = 0

    def apply(self, row: Row, tokens: Ids, start: int, stop: int, distinct: Ids, counts: Ids, n_distinct: int) -> None:
        """Change the logits of tokens[start:stop], once each, then of distinct[:n_distinct] by their counts.

        Those that are positive are divided by `repeat`, the others multiplied; presence + count * frequency is taken
        off where the count isn't 0. Arrays that are looked at again may have changed inside, and only there.
        """
        if tokens is not self._tokens or distinct is not self._distinct:
            self._look_at(tokens, distinct, counts)
        for call in (self._penalize, self._restore):
            call.put("recent", self._at + 8 * start)
            call.put("n_recent", stop - start)
            call.put("n_distinct", n_distinct)
        if row is not self._row:
            self._row_at, self._row = row.ctypes.data, row
        self._penalize.run(self._row_at)

    def undo(self) -> None:
        """Put back what the last `apply` changed."""
        self._restore.run(self._row_at)

    def _look_at(self, tokens: Ids, distinct: Ids, counts: Ids) -> None:
        saved = np.empty(len(tokens) + len(distinct), np.float32)
        self._penalize.set(distinct=distinct, counts=counts, saved=saved)
        self._restore.set(distinct=distinct, saved=saved)
        self._tokens, self._distinct, self._at = tokens, distinct, tokens.ctypes.data
