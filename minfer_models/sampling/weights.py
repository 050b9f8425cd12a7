"""Exponentials of logits with the same bits in numpy and in native code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
_LOWEST = -88.0
_LOG2_E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


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
