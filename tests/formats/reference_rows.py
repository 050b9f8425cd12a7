"""Rows of many shapes from integers alone, so that every machine and every numpy has the same bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

N_ROWS, N_COLUMNS = 4, 1024


def integers(seed: int, bits: int = 16) -> NDArray[np.int64]:
    """Evenly spread integers `[N_ROWS, N_COLUMNS]` of so many bits, around 0 (splitmix64)."""
    z = np.arange(1, N_ROWS * N_COLUMNS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(64 - bits)).astype(np.int64).reshape(N_ROWS, N_COLUMNS) - (1 << (bits - 1))


def bell(seed: int) -> Rows:
    """About normal, with a deviation near 1: a sum of twelve, as multiples of 2**-16."""
    total = np.sum([integers(seed * 16 + i) for i in range(12)], axis=0)
    return (total / 65536).astype(np.float32)


def _sparse() -> Rows:
    return np.where(integers(7, 8) > 100, bell(1), np.float32(0))


def _zeros_between() -> Rows:
    x = np.zeros((N_ROWS, N_COLUMNS), np.float32)
    x[:, ::700] = 1
    x[1] = 0
    return x


def _drift() -> Rows:
    return bell(2) / np.float32(8) + np.linspace(-3, 3, 1024).astype(np.float32)


ROWS = {
    "bell": lambda: bell(0),
    "weights": lambda: bell(3) * np.float32(2**-5),
    "heavy": lambda: bell(4) ** 2 * bell(5) ** 3,
    "sparse": _sparse,
    "positive": lambda: np.abs(bell(6)),
    "negative": lambda: -np.abs(bell(7)) - np.float32(0.25),
    "ties": lambda: (integers(8, 4) / 2).astype(np.float32),
    "equal": lambda: np.full((N_ROWS, N_COLUMNS), -0.75, np.float32),
    "zeros": _zeros_between,
    "drift": _drift,
    "small": lambda: bell(9) * np.float32(2**-16),
    "tiny": lambda: bell(10) * np.float32(2**-23),
    "spread": lambda: np.ldexp(bell(12), (integers(13, 4) * 2 - 6).astype(np.int32)),
    "stubborn": lambda: (integers(1249).astype(np.float64) ** 3 / 2**45).astype(np.float32),  # Q3_K needs five rounds
    "large": lambda: bell(14) * np.float32(2**10),
}
