"""Looking at a whole row of logits: the few operations that cost as much as the vocabulary is wide.

A backend may do them natively; the numbers are the same, bit for bit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.constraint import Mask, allowed
from minfer_models.sampling.penalties import NumpyPenalties, RowPenalties
from minfer_models.sampling.weights import Logits, weights

CHUNK = 64
"""Logits whose weights are summed together."""
LANES = 8


class Largest(Protocol):
    """A look at the first n logits of a row, for one caller at a time."""

    def argmax(self, row: Logits, mask: Mask | None = None) -> int:
        """The lowest id of the largest; -1 when one is NaN or +inf, or all are -inf.

        With a mask, of those alone that have a bit; NaN and +inf count everywhere.
        """
        ...

    def top_k(self, row: Logits) -> tuple[NDArray[np.int64], Logits] | None:
        """Ids, ascending, and values of the k largest above -inf, lower ids first; None for NaN or +inf."""
        ...

    def above(self, row: Logits, floor: float) -> tuple[NDArray[np.int64], Logits]:
        """Ids, ascending, and values of those above the float32 `floor`."""
        ...

    def masses(self, row: Logits, top: float, scale: float) -> Logits:
        """Sums of `weights(row, top, scale)` by chunks of CHUNK: float32 [ceil(n / CHUNK)]."""
        ...

    def masked(self, row: Logits, mask: Mask, out: Logits) -> None:
        """The row, with -inf added where the mask has no bit: NaN and +inf show there too, as NaN."""
        ...

    def chooser(
        self, *, k: int, whole: bool, share: int, lowest: float, scale: float, seed: int,
        biases: tuple[NDArray[np.int64], Logits], last: int, repeat: float, presence: float, frequency: float
    ) -> Chooser | None:  # fmt: skip
        """What draws from the k largest, or the whole row; the nucleus of it, those not too far below the largest.

        `share` in units of 2^-53, `lowest` and `scale` float32. `biases` are added to the logits of ids before, and
        the penalties of the `last` tokens, and of all, are taken off as in `RowPenalties`. None where that is left to
        the samplers one by one.
        """
        ...

    def penalties(self, repeat: float, presence: float, frequency: float) -> RowPenalties:
        """What changes the logits of tokens that came before."""
        ...


class Chooser(Protocol):
    """Chooses from the first n logits of rows, which are left as they were."""

    def choose(self, row: Logits, mask: Mask | None, step: int) -> int:
        """The id that the step's number draws, of those that have a bit in the mask, if there is one.

        -1 when nothing can be chosen, less when this is left to the samplers one by one, which choose the same.
        """
        ...

    def follow(
        self, tokens: NDArray[np.int64], distinct: NDArray[np.int64], counts: NDArray[np.int64],
        n_distinct: NDArray[np.int64]
    ) -> None:  # fmt: skip
        """Penalize by what a History has in its arrays, from now on."""
        ...

    def recall(self, token: int, length: int) -> None:
        """There are `length` tokens; the last one is `token`, which `choose` adds to the arrays, or -1: it is there."""
        ...


class NumpyLargest:
    """The operations in numpy."""

    def __init__(self, n: int, k: int) -> None:
        self._n, self._k = n, k

    def argmax(self, row: Logits, mask: Mask | None = None) -> int:
        """As Largest says."""
        if mask is not None:
            masked = np.empty(self._n, np.float32)
            self.masked(row, mask, masked)
            row = masked
        best = int(np.argmax(row[: self._n]))  # the first NaN, if there is one: numpy orders NaN above all
        return best if np.isfinite(row[best]) else -1

    def top_k(self, row: Logits) -> tuple[NDArray[np.int64], Logits] | None:
        """As Largest says."""
        row = row[: self._n]
        best = row.max()
        if np.isnan(best) or best == np.inf:
            return None
        ids = k_largest(row, self._k)
        return ids, row[ids]

    def above(self, row: Logits, floor: float) -> tuple[NDArray[np.int64], Logits]:
        """As Largest says."""
        ids = np.flatnonzero(row[: self._n] > np.float32(floor))
        return ids, row[ids]

    def masses(self, row: Logits, top: float, scale: float) -> Logits:
        """As Largest says."""
        chunks = -(-self._n // CHUNK)
        lanes = np.zeros((chunks * CHUNK), np.float32)
        lanes[: self._n] = weights(row[: self._n], top, scale)
        lanes = lanes.reshape(chunks, CHUNK // LANES, LANES)
        sums = lanes[:, 0].copy()
        for i in range(1, CHUNK // LANES):
            sums += lanes[:, i]
        for width in (4, 2, 1):
            sums[:, :width] += sums[:, width : 2 * width]
        return sums[:, 0]

    def masked(self, row: Logits, mask: Mask, out: Logits) -> None:
        """As Largest says."""
        barred = np.where(allowed(mask, self._n), np.float32(0), np.float32(-np.inf))
        with np.errstate(invalid="ignore"):  # inf - inf is NaN, and is to be
            np.add(row[: self._n], barred, out=out[: self._n])

    def chooser(
        self, *, k: int, whole: bool, share: int, lowest: float, scale: float, seed: int,
        biases: tuple[NDArray[np.int64], Logits], last: int, repeat: float, presence: float, frequency: float
    ) -> None:  # fmt: skip
        """Left to the samplers."""

    def penalties(self, repeat: float, presence: float, frequency: float) -> RowPenalties:
        """As Largest says."""
        return NumpyPenalties(self._n, repeat, presence, frequency)


def k_largest(row: Logits, k: int) -> NDArray[np.int64]:
    """Ids of the k largest above -inf, ascending; the lowest ids where logits tie for the last places."""
    if k >= len(row):
        return np.flatnonzero(row > -np.inf)
    last = np.partition(row, len(row) - k)[len(row) - k]
    above = np.flatnonzero(row > last)
    if last == -np.inf:
        return above
    ties = np.flatnonzero(row == last)[: k - len(above)]
    return np.sort(np.concatenate([above, ties]))


def below_all(floor: float) -> float:
    """The float32 under every float32 that is at least `floor`: a floor for `above` that loses none of them."""
    if floor < -np.finfo(np.float32).max:
        return -np.inf
    return float(np.nextafter(np.float32(floor), np.float32(-np.inf)))
