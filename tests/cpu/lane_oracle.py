"""The documented order of arithmetic in numpy, step by step in float32: what the kernels' bits are held to."""

from __future__ import annotations

from typing import Any

import numpy as np
from cpu_harness import Array

from minfer_ir.formats import Q8A32

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


BLOCK = 128
"""Positions of a KV block."""


def attention(q: Array, k: Array, v: Array, scale: float) -> Array:
    """One head `[dim]` over positions `[n, dim]`; packed cells come as (quants `[n, dim]`, scales `[n, dim / 32]`)."""
    most, total, out = f32(-np.inf), f32(0), np.zeros(len(q), f32)
    n = len(k[0]) if isinstance(k, tuple) else len(k)
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        scores = _scores(q, tuple(a[part] for a in k) if isinstance(k, tuple) else k[part]) * f32(scale)
        values = _values(tuple(a[part] for a in v) if isinstance(v, tuple) else v[part])
        largest = scores.max()
        weights = exp_weight(scores - largest)
        sums = np.zeros(16, f32)
        for w in vectors_of_16(weights):
            sums = sums + w
        block = np.zeros(len(q), f32)
        for weight, value in zip(weights, values, strict=True):
            block = fma(weight, value, block)
        after = max(most, largest)
        with np.errstate(invalid="ignore"):
            keep, take = exp_weight(np.array([most - after, largest - after]))
        total = fma(total, keep, sum_of_16(sums) * take)
        out = fma(out, keep, block * take)
        most = after
    return out / total


def exp_weight(x: Array) -> Array:
    """The exponential of attention's weights, x up to 0."""
    x = np.asarray(x, f32)
    magic = f32(12582912.0)
    with np.errstate(invalid="ignore", over="ignore"):
        inside = np.maximum(x, f32(-90))
    shifted = fma(inside, f32(1.44269504088896341), magic)
    n = shifted - magic
    r = fma(n, f32(-0.693147182464599609375), inside)
    p = np.full_like(x, float.fromhex("0x1.0fa77cp-7"))
    for c in ("0x1.573b4cp-5", "0x1.555a70p-3", "0x1.fffdc2p-2", "0x1.fffff6p-1", "0x1p0"):
        p = fma(p, r, f32(float.fromhex(c)))
    return np.where(x < f32(-87), f32(0), p * np.ldexp(f32(1), n.astype(np.int32)))


def vectors_of_16(values: Array) -> Array:
    padded = np.zeros(-(-len(values) // 16) * 16, f32)
    padded[: len(values)] = values
    return padded.reshape(-1, 16)


def sum_of_16(v: Array) -> Any:
    return sum_lanes(v[:8] + v[8:])


def _scores(q: Array, k: Any) -> Array:
    if isinstance(k, tuple):
        return _packed_scores(q, *k)
    query, scores = vectors_of_16(q), []
    for key in k.astype(f32):
        lane_sums = np.zeros(16, f32)
        for x, y in zip(query, vectors_of_16(key), strict=True):
            lane_sums = fma(x, y, lane_sums)
        scores.append(sum_of_16(lane_sums))
    return np.array(scores, f32)


def _packed_scores(q: Array, quants: Array, scales: Array) -> Array:
    planes = Q8A32.planes(Q8A32.encode(q))
    scores = np.zeros(len(quants), f32)
    for b, dq in enumerate(planes.scales):
        own = slice(32 * b, 32 * b + 32)
        dots = quants[:, own].astype(np.int32) @ planes.quants[own].astype(np.int32)
        scores = fma(dq * scales[:, b].astype(f32), dots.astype(f32), scores)
    return scores


def _values(v: Any) -> Array:
    if not isinstance(v, tuple):
        return v.astype(f32)
    quants, scales = v
    return quants.astype(f32) * np.repeat(scales.astype(f32), 32, axis=1)
