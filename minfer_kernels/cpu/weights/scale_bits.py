"""The packed small scales of K-quants, as whole bytes and back (ggml-quants.c, `get_scale_min_k4` and q3_K)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_LOW6, _LOW4, _LOW2 = np.uint8(63), np.uint8(15), np.uint8(3)
_S2, _S4, _S6 = np.uint8(2), np.uint8(4), np.uint8(6)
_SHIFTS = np.array([[0], [2], [4], [6]], np.uint8)
_CENTRE = np.uint8(32)


def split_k4(scales: Bytes) -> tuple[Bytes, Bytes]:
    """`scales [..., 12]` of Q4_K or Q5_K to eight 6-bit scales and eight 6-bit minimums, `[..., 8]` each."""
    a, b, c = scales[..., 0:4], scales[..., 4:8], scales[..., 8:12]
    low = np.concatenate([a & _LOW6, (c & _LOW4) | (a >> _S6 << _S4)], axis=-1)
    return low, np.concatenate([b & _LOW6, (c >> _S4) | (b >> _S6 << _S4)], axis=-1)


def join_k4(scales: Bytes, mins: Bytes) -> Bytes:
    """The inverse of `split_k4`."""
    a = scales[..., :4] | (scales[..., 4:] >> _S4 << _S6)
    b = mins[..., :4] | (mins[..., 4:] >> _S4 << _S6)
    c = (scales[..., 4:] & _LOW4) | (mins[..., 4:] << _S4)
    return np.concatenate([a, b, c], axis=-1)


def split_q3(scales: Bytes) -> tuple[Bytes]:
    """`scales [..., 12]` of Q3_K to sixteen signed scales of -32 to 31, as the bytes of int8 `[..., 16]`."""
    low = np.concatenate([scales[..., :8] & _LOW4, scales[..., :8] >> _S4], axis=-1)
    high = (scales[..., None, 8:] >> _SHIFTS) & _LOW2
    return ((low | (high.reshape(low.shape) << _S4)) - _CENTRE,)


def join_q3(scales: Bytes) -> Bytes:
    """The inverse of `split_q3`."""
    unsigned = scales + _CENTRE
    low = (unsigned[..., :8] & _LOW4) | (unsigned[..., 8:] << _S4)
    high = (unsigned >> _S4).reshape(*scales.shape[:-1], 4, 4) << _SHIFTS
    return np.concatenate([low, np.bitwise_or.reduce(high, axis=-2)], axis=-1)
