"""The searches for the scales of small groups with which ggml's reference quantizers encode K-quants and IQ4_NL.

Source: the published algorithms (ggml-quants.c: make_qx_quants, make_q3_quants, make_qkx2_quants and the search of
IQ4_NL, without an importance matrix). Each tries a few scalings of a group, refits the scale to the rounded quants by
weighted least squares, and keeps what fits best.

Everything is float32 in ggml's order of operations, sums from a group's first element to its last, so that the bytes
are the same as those of a ggml built without fused multiply-adds. Groups lie in columns, `[size, n]`: every operation
runs over many groups at once, and a sum over a group is a sum of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import Floats

SMALLEST_PEAK = np.float32(1e-15)
"""A group whose magnitudes all lie below this counts as zeros."""
SMALLEST_SPAN = np.float32(1e-36)
"""A group whose range is less counts as flat: the inverse of a step would overflow."""
LARGEST_SEARCHED = np.float32(2**13)
_ZERO = np.float32(0)
_ROUNDER = np.float32(12582912.0)
DESCENTS = 5


def fit_affine(
    groups: Floats, weights: Floats, largest: int, tries: Iterable[float], *, absolute: bool
) -> tuple[Floats, Floats, Floats]:
    """Scale and offset `[n]`, and quants `[size, n]`, so that `scale * q - offset` is near `groups [size, n]`.

    Offsets are >= 0: a group of positive values alone gets 0. Each of `tries` is a number of quants that the range is
    cut into; the first guess cuts it into `largest`. `weights [size, n]` weigh the errors, squared or `absolute`.
    """
    low: Floats = np.minimum(groups.min(axis=0), _ZERO)
    high: Floats = groups.max(axis=0)
    flat = high - low < SMALLEST_SPAN
    sum_w, sum_x = column_sums(weights), column_sums(weights * groups)
    cut_low = low
    cut_factor: Floats = np.float32(largest) / (high - low)
    scale = np.float32(1) / cut_factor
    q = _cut(groups, cut_low, cut_factor, largest)
    best = _affine_error(groups, weights, q, scale, low, absolute)
    weighted, product = np.empty_like(groups), np.empty_like(groups)
    for quants in tries:
        factor = np.float32(quants) / (high - low)
        q = _cut(groups, low, factor, largest)
        np.multiply(weights, q, out=weighted)
        sum_q = column_sums(weighted)
        sum_qq = column_sums(np.multiply(weighted, q, out=product))
        sum_qx = column_sums(np.multiply(weighted, groups, out=product))
        determinant = sum_w * sum_qq - sum_q * sum_q
        slope = (sum_w * sum_qx - sum_x * sum_q) / determinant
        start = (sum_qq * sum_x - sum_q * sum_qx) / determinant
        positive = start > 0
        slope = np.where(positive, sum_qx / sum_qq, slope)
        start = np.where(positive, _ZERO, start)
        error = _affine_error(groups, weights, q, slope, start, absolute)
        better = (determinant > 0) & (error < best)
        cut_low, cut_factor = np.where(better, low, cut_low), np.where(better, factor, cut_factor)
        scale, best = np.where(better, slope, scale), np.where(better, error, best)
        low = np.where(better, start, low)  # the next try cuts from here
    q = np.where(flat, _ZERO, _cut(groups, cut_low, cut_factor, largest))
    return np.where(flat, _ZERO, scale), _ZERO - low, q


def fit_signed(groups: Floats, lowest: int, tries: Iterable[float]) -> tuple[Floats, Floats]:
    """The signed scale `[n]`, and levels `[size, n]` from `lowest` to `-lowest - 1`, nearest to `groups [size, n]`.

    The element of largest magnitude gets the level `lowest` first, then each of `tries`. Errors weigh by the square of
    the value.
    """
    peak, zero = _peaks(groups)
    weights = groups * groups
    factor = np.float32(lowest) / peak
    best_factor = factor
    sum_lx, sum_ll = _moments(groups, weights, _levels(groups, factor, lowest))
    scale = _quotient(sum_lx, sum_ll)
    best = scale * sum_lx
    for extreme in tries:
        factor = np.float32(extreme) / peak
        sum_lx, sum_ll = _moments(groups, weights, _levels(groups, factor, lowest))
        better = (sum_ll > 0) & (sum_lx * sum_lx > best * sum_ll)
        found = _quotient(sum_lx, sum_ll)
        scale, best = np.where(better, found, scale), np.where(better, found * sum_lx, best)
        best_factor = np.where(better, factor, best_factor)
    levels = np.where(zero, np.float32(lowest), _levels(groups, best_factor, lowest))
    return np.where(zero, _ZERO, scale), levels


def fit_by_descent(groups: Floats, lowest: int) -> tuple[Floats, Floats]:
    """As `fit_signed`, with one scaling whose levels are then moved one by one while that fits better.

    Five rounds at most over the elements of a group, each taking the level that is best for the others as they are.
    """
    peak, zero = _peaks(groups)
    weights = groups * groups
    levels = _levels(groups, np.float32(lowest) / peak, lowest)
    sum_lx, sum_ll = _moments(groups, weights, levels)
    moving = np.arange(groups.shape[1], dtype=np.intp)
    for _ in range(DESCENTS):
        state = (levels[:, moving], sum_lx[moving], sum_ll[moving])
        moved = _descend(groups[:, moving], weights[:, moving], *state, lowest)
        levels[:, moving], sum_lx[moving], sum_ll[moving] = state
        moving = moving[moved]  # a group that stood still has arrived
        if not len(moving):
            break
    return np.where(zero, _ZERO, _quotient(sum_lx, sum_ll)), np.where(zero, np.float32(lowest), levels)


def _descend(
    groups: Floats, weights: Floats, levels: Floats, sum_lx: Floats, sum_ll: Floats, lowest: int
) -> NDArray[np.bool_]:
    """One round over the elements, in place; says which groups changed."""
    changed = np.zeros(groups.shape[1], np.bool_)
    weighted = weights * groups
    for x, w, wx, level in zip(groups, weights, weighted, levels, strict=True):
        other_lx, other_ll = sum_lx - wx * level, sum_ll - w * level * level
        moved = round_as_ggml(x * other_ll / other_lx)
        np.minimum(np.maximum(moved, np.float32(lowest), out=moved), np.float32(-lowest - 1), out=moved)
        differs = (other_lx > 0) & (moved != level)
        if not differs.any():
            continue
        moved_lx, moved_ll = other_lx + wx * moved, other_ll + w * moved * moved
        better = differs & (moved_ll > 0) & (moved_lx * moved_lx * sum_ll > sum_lx * sum_lx * moved_ll)
        np.copyto(level, moved, where=better)
        np.copyto(sum_lx, moved_lx, where=better)
        np.copyto(sum_ll, moved_ll, where=better)
        changed |= better
    return changed


def fit_table(groups: Floats, first: float, tries: Iterable[float], to_level: Callable[[Floats], Floats]) -> Floats:
    """The signed scale `[n]` under which levels of a table, to which `to_level` rounds, are nearest to `groups`.

    The element of largest magnitude counts as `first`, then as each of `tries`. Errors weigh by the value's square.
    """
    peak, zero = _peaks(groups)
    weights = groups * groups
    factor: Floats = np.float32(1) / (peak / np.float32(first))
    sum_lx, sum_ll = _table_moments(groups, weights, to_level(groups * factor))
    scale = _quotient(sum_lx, sum_ll)
    best = scale * sum_lx
    for extreme in tries:
        factor = np.float32(extreme) / peak
        sum_lx, sum_ll = _table_moments(groups, weights, to_level(groups * factor))
        better = (sum_ll > 0) & (sum_lx * sum_lx > best * sum_ll)
        found = _quotient(sum_lx, sum_ll)
        scale, best = np.where(better, found, scale), np.where(better, found * sum_lx, best)
    return np.where(zero, _ZERO, scale)


def bounded(values: Floats) -> tuple[Floats, Floats]:
    """Blocks `[n, size]` whose products stay in float32, and what each was divided by, `[n, 1]`: a power of two.

    The searches multiply up to eight values; blocks below LARGEST_SEARCHED are left as they are.
    """
    _, exponents = np.frexp(np.abs(values).max(axis=1, keepdims=True) / LARGEST_SEARCHED)
    exponents = np.maximum(exponents, 0)
    if not exponents.any():
        return values, np.ones_like(values[:, :1])
    return np.ldexp(values, -exponents), np.ldexp(np.float32(1), exponents)


def column_sums(values: Floats) -> Floats:
    """Sums of the columns of `[size, n]`, contiguous, each from its first element to its last."""
    if values.shape[1] > 1:
        return np.add.reduce(values, axis=0)  # row is added to row
    total = values[0].copy()  # a lone column would be summed in pairs
    for row in values[1:]:
        total += row
    return total


def round_as_ggml(values: Floats) -> Floats:
    """Nearest integers, halves to even, as ggml gets them: the low bits of a float beside 1.5 * 2**23.

    Beyond 2**22 those bits mean nothing, and searches whose criterion throws such a candidate out rely on the same
    nothing.
    """
    bits: NDArray[np.int32] = (values + _ROUNDER).view(np.int32)
    return ((bits & np.int32(0x7FFFFF)) - np.int32(0x400000)).astype(np.float32)


def _peaks(groups: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """The first element of largest magnitude of every group `[n]`, and which groups are zeros."""
    peak = np.take_along_axis(groups, np.abs(groups).argmax(axis=0)[None], axis=0)[0]
    return peak, np.abs(peak) < SMALLEST_PEAK


def _cut(groups: Floats, low: Floats, factor: Floats, largest: int) -> Floats:
    return _whole(groups - low, factor, 0, largest)


def _levels(groups: Floats, factor: Floats, lowest: int) -> Floats:
    return _whole(groups.copy(), factor, lowest, -lowest - 1)


def _whole(values: Floats, factor: Floats, lowest: int, largest: int) -> Floats:
    """`values * factor` as whole numbers in those bounds, in the memory of `values`."""
    values *= factor
    np.rint(values, out=values)
    np.maximum(values, np.float32(lowest), out=values)
    return np.minimum(values, np.float32(largest), out=values)


def _moments(groups: Floats, weights: Floats, levels: Floats) -> tuple[Floats, Floats]:
    products = weights * groups
    products *= levels
    sum_lx = column_sums(products)
    np.multiply(weights, levels, out=products)
    products *= levels
    return sum_lx, column_sums(products)


def _table_moments(groups: Floats, weights: Floats, levels: Floats) -> tuple[Floats, Floats]:
    weighted = weights * levels  # ggml multiplies in this order here
    sum_lx = column_sums(weighted * groups)
    weighted *= levels
    return sum_lx, column_sums(weighted)


def _quotient(sum_lx: Floats, sum_ll: Floats) -> Floats:
    return np.where(sum_ll > 0, sum_lx / sum_ll, _ZERO)


def _affine_error(groups: Floats, weights: Floats, q: Floats, scale: Floats, offset: Floats, absolute: bool) -> Floats:
    """Weighted errors of the columns; `q` is used up."""
    q *= scale
    q += offset
    q -= groups
    if absolute:
        np.abs(q, out=q)
    else:
        q *= q
    q *= weights
    return column_sums(q)
