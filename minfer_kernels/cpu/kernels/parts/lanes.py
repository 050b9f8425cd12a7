"""Functions of eight lanes that several kernels compute, so that fused and plain kernels give the same bits."""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.simd import (
    exp,
    f32,
    fma,
    inline,
    load_f32x8,
    load_f32x8_partial,
    splat_f32x8,
    sqrt_f32,
    sum_lanes,
)


@inline
def silu_lanes(x: Any) -> Any:
    """x / (1 + exp(-x))."""
    return x / (splat_f32x8(1.0) + exp(-x))


@inline
def swiglu_lanes(gate: Any, up: Any) -> Any:
    """silu(gate) * up."""
    return silu_lanes(gate) * up


@inline
def sum_of_squares(x: int, width: int) -> Any:
    """The squares of `width` float32 at x, summed.

    Order: four vectors of partial sums take 32 elements in turn; the vectors left over go to the first; then
    (0 + 1) + (2 + 3) and the tree of `sum_lanes`.
    """
    a0 = splat_f32x8(0.0)
    a1 = a0
    a2 = a0
    a3 = a0
    blocks = width // 32 * 32
    for i in range(0, blocks, 32):
        p = x + 4 * i
        v0, v1, v2, v3 = load_f32x8(p), load_f32x8(p + 32), load_f32x8(p + 64), load_f32x8(p + 96)
        a0, a1, a2, a3 = fma(v0, v0, a0), fma(v1, v1, a1), fma(v2, v2, a2), fma(v3, v3, a3)
    for i in range(blocks, width - 7, 8):
        v = load_f32x8(x + 4 * i)
        a0 = fma(v, v, a0)
    rest = width % 8
    if rest != 0:
        v = load_f32x8_partial(x + 4 * (width - rest), rest, 0.0)
        a0 = fma(v, v, a0)
    return sum_lanes((a0 + a1) + (a2 + a3))


@inline
def inverse_rms(x: int, width: int, eps: Any) -> Any:
    """1 / sqrt(mean square + eps) of `width` float32 at x."""
    return f32(1.0) / sqrt_f32(sum_of_squares(x, width) / f32(width) + eps)


@inline
def normed_lanes(x: Any, inverse: Any, weight: Any) -> Any:
    """(x * inverse) * weight, `inverse` in every lane."""
    return x * inverse * weight
