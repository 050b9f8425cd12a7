"""Least-squares search for the scales of small groups, used to encode K-quants and IQ4_NL.

Both searches try a few scalings of each group, refit the scale to the rounded quants, and keep the smallest squared
error, which is therefore never above that of the plain min/max scaling they start from. ggml's quantizers do the same
with weighted errors; here every element weighs the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minfer_ir.formats.base import Floats

_F16_MAX = np.float32(65504)


def fit_affine(groups: Floats, largest: int, steps: Sequence[float]) -> tuple[Floats, Floats]:
    """Scale and offset, both >= 0 and `[n]`, so that `scale * q - offset` is near `groups [n, size]`, q in 0..largest.

    Each of `steps` is tried as `largest + step` quants for the range of a group. A group whose values are all
    positive keeps offset 0, because the stored offset has no sign.
    """
    low = np.minimum(groups.min(axis=1, keepdims=True), 0)
    span = groups.max(axis=1, keepdims=True) - low
    best_scale, best_low = np.maximum(span, 0) / np.float32(largest), low
    best_error = _affine_error(groups, _quants(groups - low, best_scale, 0, largest), best_scale, best_low)
    for step in steps:
        q = _quants(groups - low, span / np.float32(largest + step), 0, largest)
        scale, offset = _regress(groups, q)
        error = _affine_error(groups, q, scale, offset)
        better = (error < best_error) & (scale > 0)
        best_scale = np.where(better, scale, best_scale)
        best_low = np.where(better, offset, best_low)
        best_error = np.where(better, error, best_error)
    return best_scale[:, 0], np.float32(0) - best_low[:, 0]


def fit_symmetric(groups: Floats, extremes: Sequence[float], to_level: Callable[[Floats], Floats]) -> Floats:
    """The signed scale `[n]` for which `scale * level` is nearest to `groups [n, size]`.

    Each of `extremes` is tried as the level of the element of largest magnitude; `to_level` rounds to a level.
    """
    peak = np.take_along_axis(groups, np.abs(groups).argmax(axis=1, keepdims=True), axis=1)
    best_scale, best_gain = np.zeros_like(peak), np.zeros_like(peak)
    for extreme in extremes:
        levels = to_level(divide(groups, peak / np.float32(extreme)))
        power = _dot(levels, levels)
        scale = divide(_dot(groups, levels), power)
        gain = scale * scale * power  # how much the squared error falls below that of scale 0
        better = gain > best_gain
        best_scale = np.where(better, scale, best_scale)
        best_gain = np.where(better, gain, best_gain)
    return best_scale[:, 0]


def shared_scale(scales: Floats, largest: int) -> Floats:
    """The float16 super-block scale, as float32 `[n, 1]`, for which `scales [n, k]` become integers up to `largest`.

    `largest` carries the sign of the integer that the scale of largest magnitude gets. Nearest float16, or the next
    one outward where nearest would push that integer past `largest` (scales below 2**-14 have few bits left).
    """
    peak = np.take_along_axis(scales, np.abs(scales).argmax(axis=1, keepdims=True), axis=1)
    wanted = peak / np.float32(largest)
    nearest = wanted.astype(np.float16)
    too_small = np.rint(divide(peak, nearest.astype(np.float32))) / np.float32(largest) > 1
    too_small |= (nearest == 0) & (peak != 0)
    outward = np.nextafter(nearest, np.copysign(np.float16(np.inf), wanted.astype(np.float16)))
    # A scale beyond float16 stays infinite here, for the caller to refuse.
    return np.where(too_small & (np.abs(wanted) <= _F16_MAX), outward, nearest).astype(np.float32)


def divide(values: Floats, by: Floats) -> Floats:
    """values / by, and 0 where `by` is 0."""
    return np.where(by == 0, np.float32(0), values / np.where(by == 0, np.float32(1), by))


def _quants(values: Floats, scale: Floats, low: int, high: int) -> Floats:
    return np.rint(divide(values, scale)).clip(low, high)


def _regress(groups: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Least squares `groups ~ scale * q + offset` per row, with offset held at 0 where it would be positive."""
    size = np.float32(groups.shape[1])
    sum_q, sum_x = q.sum(axis=1, keepdims=True), groups.sum(axis=1, keepdims=True)
    sum_qq, sum_qx = _dot(q, q), _dot(q, groups)
    determinant = size * sum_qq - sum_q * sum_q
    offset = divide(sum_qq * sum_x - sum_q * sum_qx, determinant)
    scale = divide(size * sum_qx - sum_q * sum_x, determinant)
    return np.where(offset > 0, divide(sum_qx, sum_qq), scale), np.minimum(offset, 0)


def _affine_error(groups: Floats, q: Floats, scale: Floats, offset: Floats) -> Floats:
    residual = scale * q + offset - groups
    return _dot(residual, residual)


def _dot(a: Floats, b: Floats) -> Floats:
    return np.einsum("ij,ij->i", a, b)[:, None]
