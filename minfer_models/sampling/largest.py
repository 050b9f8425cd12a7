"""Looking at a whole row of logits: the few operations that cost as much as the vocabulary is wide.

A backend may do them natively; the numbers are the same, bit for bit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.candidates import Logits
from minfer_models.sampling.constraint import Mask, allowed

CHUNK = 64
"""Logits whose weights are summed together."""
LANES = 8
_LOWEST = -88.0
_LOG2_E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


class Largest(Protocol):
    """A look at the first n logits of a row, for one caller at a time."""

    def argmax(self, row: Logits) -> int:
        """The lowest id of the largest; -1 when one is NaN or +inf, or all are -inf."""
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


class NumpyLargest:
    """The operations in numpy."""

    def __init__(self, n: int, k: int) -> None:
        self._n, self._k = n, k

    def argmax(self, row: Logits) -> int:
        """As Largest says."""
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


def weights(row: Logits, top: float, scale: float) -> Logits:
    """exp((row - top) * scale) within 2e-7 relative, 0 below e^-88, float32; `top` the largest, `scale` above 0.

    Cephes' expf with each product and sum rounded, so that vector units and numpy have the same bits.
    """
    with np.errstate(over="ignore"):
        x: Logits = (row - np.float32(top)) * np.float32(scale)
    np.maximum(x, np.float32(_LOWEST), out=x)
    power: Logits = np.rint(x * _LOG2_E)
    x -= power * _LN2_HIGH
    x -= power * _LN2_LOW
    p: Logits = np.full_like(x, _POLYNOMIAL[0])
    for c in _POLYNOMIAL[1:]:
        p *= x
        p += np.float32(c)
    p *= x * x
    p += x
    p += np.float32(1)
    p *= ((power.astype(np.int32) + 127) << 23).view(np.float32)
    return p


def scale_of(temperature: float) -> float:
    """1 / temperature, as a number that float32 can hold."""
    return min(max(1.0 / max(float(temperature), 1e-30), 1e-30), 1e30)


def below_all(floor: float) -> float:
    """The float32 under every float32 that is at least `floor`: a floor for `above` that loses none of them."""
    if floor < -np.finfo(np.float32).max:
        return -np.inf
    return float(np.nextafter(np.float32(floor), np.float32(-np.inf)))
