"""Choosing an element of a row natively, penalties and biases included: one call behind every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.call import Call, word

Row = NDArray[np.float32]
Ids = NDArray[np.int64]
Mask = NDArray[np.uint32]
MOST = 128
"""The largest k: beyond, sorting by insertion costs more than numpy does."""
_ROOM = 256


class Chooser:
    """Chooses from the first `n` elements of rows, for one caller at a time; the rows are left as they were.

    Rows are contiguous float32 of at least `n` elements, and can be written to where something changes them.
    """

    def __init__(
        self,
        library: KernelLibrary,
        n: int,
        *,
        k: int,
        whole: bool,
        share: int,
        lowest: float,
        scale: float,
        seed: int,
        biases: tuple[Ids, Row],
        last: int,
        repeat: float,
        presence: float,
        frequency: float,
    ) -> None:
        """k: how many of the largest are looked at; whole: they stand for the whole row.

        share: of the nucleus, in units of 2^-53; lowest: how far below the largest an element may lie; scale: what
        elements are multiplied with for the draw; seed: from 0 to 2^64-1. biases: what is added to which elements.
        last, repeat, presence, frequency: the elements that the last tokens name are divided by `repeat` if positive,
        else multiplied; then presence + count * frequency is taken off for those among `distinct` whose count isn't 0.
        """
        if not 1 <= k <= MOST:
            raise ValueError(f"k is {k}, expected 1 to {MOST}")
        self._call = call = Call(library.load(("choose.choose",))["choose.choose"])
        self._n, self._n_biased = n, len(biases[0])
        self._out = np.zeros(1, np.int64)
        capacity = max(4 * k, _ROOM)
        call.set(
            n=n,
            k=k,
            whole=whole,
            share=share,
            lowest=word(lowest),
            scale=word(scale),
            seed=seed if seed < 1 << 63 else seed - (1 << 64),
            biased=biases[0],
            biases=biases[1],
            n_biased=self._n_biased,
            last=last,
            repeat=word(repeat),
            presence=word(presence),
            frequency=word(frequency),
            saved=np.empty(self._n_biased, np.float32),
            capacity=capacity,
            values=np.empty(capacity, np.float32),
            ids=np.empty(capacity, np.int64),
            weights=np.empty(k, np.float32),
            order=np.empty(k, np.int64),
            out=self._out,
        )
        # Behind a step nothing of this is in the caches: each look-up that is saved here is a microsecond.
        self._entry, self._words, self._found = call.entry, call.words, self._out.data
        self._step, self._token, self._length = map(call.index, ("step", "token", "length"))
        self._row: Row | None = None
        self._mask: Mask | None = None

    def choose(self, row: Row, mask: Mask | None, step: int) -> int:
        """The id that the seed draws in this step; only elements whose bit in the mask is set, where there is one.

        -1 when an element is NaN or +inf, or none is left above -inf; -2 when the k largest can't tell what is chosen.
        """
        if row is not self._row:
            self._look_at(row)
        if mask is not self._mask:
            self._read(mask)
        words = self._words
        words[self._step] = step
        self._entry()
        return self._found[0]

    def follow(self, tokens: Ids, distinct: Ids, counts: Ids, n_distinct: Ids) -> None:
        """Penalize by these tokens, int64 [room], from now on; by the first n_distinct[0] of `distinct` with `counts`.

        They may change inside: `choose` takes what `recall` says into them.
        """
        saved = np.empty(self._n_biased + len(tokens) + len(distinct), np.float32)
        self._call.set(tokens=tokens, distinct=distinct, counts=counts, n_distinct=n_distinct, saved=saved)

    def recall(self, token: int, length: int) -> None:
        """There are `length` tokens, at most [room]; the last one is `token`, to be taken in; -1 where it has been."""
        words = self._words
        words[self._token] = token
        words[self._length] = length

    def _look_at(self, row: Row) -> None:
        if row.dtype != np.float32 or not row.flags.c_contiguous or row.ndim != 1 or row.size < self._n:
            raise ValueError(f"expected {self._n} contiguous float32, got {row.dtype} of shape {row.shape}")
        self._call.set(row=row)
        self._row = row

    def _read(self, mask: Mask | None) -> None:
        words = None if mask is None else np.ascontiguousarray(mask, np.uint32)
        if words is not None and 32 * words.size < self._n:
            raise ValueError(f"the mask has {words.size} words, fewer than {self._n} elements take")
        self._call.set(mask=0 if words is None else words)
        self._mask = words
