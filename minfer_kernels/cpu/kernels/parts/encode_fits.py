"""The searches of `minfer_ir.formats.search` over sixteen groups at once, operation by operation as there.

Groups lie in columns (`encode_columns`); sums go from a group's first element to its last. Where those functions take
NaN for a sign that a candidate is none, so do these: `clamped` keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_ir.formats.search import DESCENTS, SMALLEST_PEAK, SMALLEST_SPAN
from minfer_kernels.cpu.kernels.parts.encode_columns import ROW
from minfer_kernels.cpu.simd import (
    absolute,
    any_lane,
    f32,
    greater,
    inline,
    less,
    load_f32,
    load_f32x16,
    maximum,
    minimum,
    round_even,
    select,
    splat_f32x16,
    sqrt,
    store_f32x16,
)
from minfer_kernels.cpu.simd.core import stack_room
from minfer_kernels.cpu.simd.rounding import both, round_as_ggml

LEVELS = stack_room(32 * ROW)


@inline
def splat(value: float) -> Any:
    """A float32 in all lanes."""
    return splat_f32x16(f32(value))


@inline
def clamped(values: Any, lowest: float, largest: float) -> Any:
    """Within bounds; NaN stays."""
    return minimum(splat(largest), maximum(splat(lowest), values))


@inline
def cut(x: Any, low: Any, factor: Any, largest: float) -> Any:
    """(x - low) * factor as whole numbers from 0 to `largest`."""
    return clamped(round_even((x - low) * factor), 0.0, largest)


@inline
def levels(x: Any, factor: Any, lowest: float) -> Any:
    """x * factor as whole numbers from `lowest` to `-lowest - 1`."""
    return clamped(round_even(x * factor), lowest, -lowest - 1.0)


def magnitude_weights(size: int) -> Callable[..., Any]:
    """|x|: Q2_K's weights."""

    @inline
    def fill(groups: int, weights: int) -> None:
        for e in range(size):
            store_f32x16(weights + ROW * e, absolute(load_f32x16(groups + ROW * e)))

    return fill


def lifted_weights(size: int) -> Callable[..., Any]:
    """|x| and the group's root mean square: those of Q4_K and Q5_K."""

    @inline
    def fill(groups: int, weights: int) -> None:
        x = load_f32x16(groups)
        total = x * x
        for e in range(1, size):
            x = load_f32x16(groups + ROW * e)
            total = total + x * x
        root = sqrt(total / splat(size))
        for e in range(size):
            store_f32x16(weights + ROW * e, root + absolute(load_f32x16(groups + ROW * e)))

    return fill


def affine_fit(size: int, largest: int, absolute_errors: bool) -> Callable[..., Any]:
    """`fit_affine`: (groups, weights, tries, n_tries) to scale, offset, and the low and factor that quants are cut by.

    The factor of a flat group is 0, which gives it quants of 0.
    """
    top = float(largest)

    @inline
    def error(groups: int, weights: int, quants: int, scale: Any, start: Any) -> Any:
        total = splat(0.0)
        for e in range(size):
            r = load_f32x16(quants + ROW * e) * scale + start - load_f32x16(groups + ROW * e)
            r = absolute(r) if absolute_errors else r * r
            total = total + r * load_f32x16(weights + ROW * e)
        return total

    @inline
    def sums(groups: int, weights: int, quants: int, low: Any, factor: Any) -> Any:
        sum_q, sum_qq, sum_qx = splat(0.0), splat(0.0), splat(0.0)
        for e in range(size):
            x = load_f32x16(groups + ROW * e)
            q = cut(x, low, factor, top)
            store_f32x16(quants + ROW * e, q)
            weighted = load_f32x16(weights + ROW * e) * q
            sum_q, sum_qq, sum_qx = sum_q + weighted, sum_qq + weighted * q, sum_qx + weighted * x
        return sum_q, sum_qq, sum_qx

    @inline
    def fit(groups: int, weights: int, tries: int, n_tries: int) -> Any:
        zero, quants = splat(0.0), LEVELS()
        low = high = load_f32x16(groups)
        sum_w = load_f32x16(weights)
        sum_x = sum_w * low
        for e in range(1, size):
            x, w = load_f32x16(groups + ROW * e), load_f32x16(weights + ROW * e)
            low, high = minimum(low, x), maximum(high, x)
            sum_w, sum_x = sum_w + w, sum_x + w * x
        low = minimum(low, zero)
        flat = less(high - low, splat(SMALLEST_SPAN))
        cut_low, cut_factor = low, splat(top) / (high - low)
        scale = splat(1.0) / cut_factor
        for e in range(size):
            store_f32x16(quants + ROW * e, cut(load_f32x16(groups + ROW * e), cut_low, cut_factor, top))
        best = error(groups, weights, quants, scale, low)
        for i in range(n_tries):
            factor = splat_f32x16(load_f32(tries + 4 * i)) / (high - low)
            sum_q, sum_qq, sum_qx = sums(groups, weights, quants, low, factor)
            determinant = sum_w * sum_qq - sum_q * sum_q
            slope = (sum_w * sum_qx - sum_x * sum_q) / determinant
            start = (sum_qq * sum_x - sum_q * sum_qx) / determinant
            positive = greater(start, zero)
            slope, start = select(positive, sum_qx / sum_qq, slope), select(positive, zero, start)
            found = error(groups, weights, quants, slope, start)
            better = both(greater(determinant, zero), less(found, best))
            cut_low, cut_factor = select(better, low, cut_low), select(better, factor, cut_factor)
            scale, best = select(better, slope, scale), select(better, found, best)
            low = select(better, start, low)
        return select(flat, zero, scale), zero - low, select(flat, zero, cut_low), select(flat, zero, cut_factor)

    return fit


@inline
def quotient(sum_lx: Any, sum_ll: Any) -> Any:
    """sum_lx / sum_ll, 0 where sum_ll isn't positive."""
    zero = splat(0.0)
    return select(greater(sum_ll, zero), sum_lx / sum_ll, zero)


def peaks_of(size: int) -> Callable[..., Any]:
    """(groups) to each group's first element of largest magnitude."""

    @inline
    def peaks(groups: int) -> Any:
        peak = load_f32x16(groups)
        for e in range(1, size):
            x = load_f32x16(groups + ROW * e)
            peak = select(greater(absolute(x), absolute(peak)), x, peak)
        return peak

    return peaks


@inline
def is_zero(peak: Any) -> Any:
    """Groups that count as zeros."""
    return less(absolute(peak), splat(SMALLEST_PEAK))


def _search(size: int, products: Callable[..., Any]) -> Callable[..., Any]:
    """(groups, first factor, peak, tries, n_tries) to the best scale and the factor that it came from.

    `products(x, factor)` are an element's terms of the sums of level times value and of squared levels.
    """

    @inline
    def moments(groups: int, factor: Any) -> Any:
        sum_lx, sum_ll = products(load_f32x16(groups), factor)
        for e in range(1, size):
            lx, ll = products(load_f32x16(groups + ROW * e), factor)
            sum_lx, sum_ll = sum_lx + lx, sum_ll + ll
        return sum_lx, sum_ll

    @inline
    def search(groups: int, factor: Any, peak: Any, tries: int, n_tries: int) -> Any:
        best_factor = factor
        sum_lx, sum_ll = moments(groups, factor)
        scale = quotient(sum_lx, sum_ll)
        best = scale * sum_lx
        for i in range(n_tries):
            factor = splat_f32x16(load_f32(tries + 4 * i)) / peak
            sum_lx, sum_ll = moments(groups, factor)
            better = both(greater(sum_ll, splat(0.0)), greater(sum_lx * sum_lx, best * sum_ll))
            found = quotient(sum_lx, sum_ll)
            scale, best = select(better, found, scale), select(better, found * sum_lx, best)
            best_factor = select(better, factor, best_factor)
        return scale, best_factor

    return search


def signed_fit(size: int, lowest: int) -> Callable[..., Any]:
    """`fit_signed`: (groups, tries, n_tries) to the scale and the factor of the levels; both 0 for zeros."""
    bottom = float(lowest)
    peaks = peaks_of(size)

    @inline
    def products(x: Any, factor: Any) -> Any:
        level = levels(x, factor, bottom)
        return x * x * x * level, x * x * level * level

    search = _search(size, products)

    @inline
    def fit(groups: int, tries: int, n_tries: int) -> Any:
        peak = peaks(groups)
        scale, factor = search(groups, splat(bottom) / peak, peak, tries, n_tries)
        zero = is_zero(peak)
        return select(zero, splat(0.0), scale), select(zero, splat(0.0), factor)

    return fit


def table_fit(size: int, first: float, to_level: Callable[..., Any]) -> Callable[..., Any]:
    """`fit_table`: (groups, tries, n_tries) to the scale."""
    peaks = peaks_of(size)

    @inline
    def products(x: Any, factor: Any) -> Any:
        level = to_level(x * factor)
        weighted = x * x * level
        return weighted * x, weighted * level

    search = _search(size, products)

    @inline
    def fit(groups: int, tries: int, n_tries: int) -> Any:
        peak = peaks(groups)
        scale, _ = search(groups, splat(1.0) / (peak / splat(first)), peak, tries, n_tries)
        return select(is_zero(peak), splat(0.0), scale)

    return fit


def descent_fit(size: int, lowest: int) -> Callable[..., Any]:
    """`fit_by_descent`: (groups, into) to the scale; the levels are left in `into`, in columns."""
    bottom = float(lowest)
    peaks = peaks_of(size)

    @inline
    def fit(groups: int, into: int) -> Any:
        zero, peak = splat(0.0), peaks(groups)
        factor = splat(bottom) / peak
        x = load_f32x16(groups)
        level = levels(x, factor, bottom)
        store_f32x16(into, level)
        sum_lx, sum_ll = x * x * x * level, x * x * level * level
        for e in range(1, size):
            x = load_f32x16(groups + ROW * e)
            level = levels(x, factor, bottom)
            store_f32x16(into + ROW * e, level)
            sum_lx, sum_ll = sum_lx + x * x * x * level, sum_ll + x * x * level * level
        moving, rounds = 1, 0
        while moving == 1 and rounds < DESCENTS:
            moving, rounds = 0, rounds + 1
            for e in range(size):
                x, level = load_f32x16(groups + ROW * e), load_f32x16(into + ROW * e)
                w = x * x
                wx = w * x
                other_lx, other_ll = sum_lx - wx * level, sum_ll - w * level * level
                moved = clamped(round_as_ggml(x * other_ll / other_lx), bottom, -bottom - 1.0)
                moved_lx, moved_ll = other_lx + wx * moved, other_ll + w * moved * moved
                gain = greater(moved_lx * moved_lx * sum_ll, sum_lx * sum_lx * moved_ll)
                differs = both(greater(other_lx, zero), greater(absolute(moved - level), zero))
                better = both(differs, both(greater(moved_ll, zero), gain))
                store_f32x16(into + ROW * e, select(better, moved, level))
                sum_lx, sum_ll = select(better, moved_lx, sum_lx), select(better, moved_ll, sum_ll)
                if any_lane(better) == 1:
                    moving = 1
        of_zeros = is_zero(peak)
        for e in range(size):
            store_f32x16(into + ROW * e, select(of_zeros, splat(bottom), load_f32x16(into + ROW * e)))
        return select(of_zeros, zero, quotient(sum_lx, sum_ll))

    return fit
