"""The documented order of arithmetic in numpy, step by step in float32: what the kernels' bits are held to."""

from __future__ import annotations

from typing import Any

import numpy as np
from cpu_harness import Array

f32 = np.float32


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z rounded once: the product is exact in float64, and a second rounding matters once in 2**29."""
    return (np.float64(x) * np.float64(y) + np.float64(z)).astype(f32)


def lanes(values: Array, fill: float = 0.0) -> Array:
    """A row as vectors of eight `[n, 8]`, filled up."""
    padded = np.full(-(-len(values) // 8) * 8, fill, f32)
    padded[: len(values)] = values
    return padded.reshape(-1, 8)


def sum_lanes(v: Array) -> Any:
    return f32(((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])))


def exp(x: Array) -> Array:
    """Cephes' expf as the kernels compute it."""
    x = np.clip(np.asarray(x, f32), f32(-110), f32(100))
    magic = f32(12582912.0)
    shifted = fma(x, f32(1.44269504088896341), magic)
    n = shifted - magic
    r = fma(n, f32(2.12194440e-4), fma(n, f32(-0.693359375), x))
    p = np.full_like(x, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, f32(c))
    p = fma(p, r * r, r) + f32(1)
    exponent = n.astype(np.int32)
    half = exponent >> 1
    return p * np.ldexp(f32(1), half) * np.ldexp(f32(1), exponent - half)


def sum_of_squares(x: Array) -> Any:
    vectors = lanes(x)
    partial = np.zeros((4, 8), f32)
    whole = len(x) // 32 * 4
    for i, v in enumerate(vectors):
        to = i % 4 if i < whole else 0
        partial[to] = fma(v, v, partial[to])
    return sum_lanes((partial[0] + partial[1]) + (partial[2] + partial[3]))


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    inverse = f32(1) / np.sqrt(sum_of_squares(x) / f32(len(x)) + f32(eps))
    return x * inverse * weight


def softmax(x: Array) -> Array:
    e = exp(x - x.max())
    vectors = lanes(e)
    total, rest = np.zeros(8, f32), len(x) % 8
    for v in vectors[: len(x) // 8]:
        total = total + v
    return e / sum_lanes(total + (vectors[-1] if rest else f32(0)))


def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
    """One head `[dim]` over positions `[n, dim]`, in blocks of 64."""
    most, total, out = f32(-np.inf), f32(0), np.zeros(len(q), f32)
    query = lanes(q)
    for start in range(0, len(k), 64):
        keys, values = k[start : start + 64].astype(f32), v[start : start + 64].astype(f32)
        scores = np.array([_score(query, lanes(key)) for key in keys], f32) * f32(scale)
        largest = scores.max()
        weights = exp(scores - largest)
        vectors = lanes(weights)
        sums = np.zeros(8, f32)
        for w in vectors:
            sums = sums + w
        block = np.zeros(len(q), f32)
        for weight, value in zip(weights, values, strict=True):
            block = fma(weight, value, block)
        after = max(most, largest)
        with np.errstate(invalid="ignore"):
            keep, take = exp(np.array([most - after, largest - after]))
        total = fma(total, keep, sum_lanes(sums) * take)
        out = fma(out, keep, block * take)
        most = after
    return out / total


def _score(query: Array, key: Array) -> Any:
    lane_sums = np.zeros(8, f32)
    for q, k in zip(query, key, strict=True):
        lane_sums = fma(q, k, lane_sums)
    return sum_lanes(lane_sums)
