"""Statistics of a few repetitions: medians, because a neighbour's burst must not decide; seeded intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

SEED = 0
RESAMPLES = 10_000
LEVEL = 0.95
ENOUGH_ROUNDS = 5
"""Of equal sides, n rounds all fall to the same one with probability 2 / 2^n: 1/4 for three, 1/16 for five."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Of `n` values: `stddev` is the sample's (0 for one value), `spread` the largest minus the smallest."""

    n: int
    median: float
    mean: float
    stddev: float
    min: float
    max: float
    spread: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Raises ValueError for no values at all."""
        if not values:
            raise ValueError("there are no values to summarize")
        v = np.asarray(values, np.float64)
        stddev = float(v.std(ddof=1)) if len(v) > 1 else 0.0
        low, high = float(v.min()), float(v.max())
        return cls(len(v), float(np.median(v)), float(v.mean()), stddev, low, high, high - low)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of matched ratios, with a bootstrap interval [`low`, `high`] that holds it at `level` confidence.

    `low` and `high` are None for one round, which says nothing about its spread. With few rounds the interval can be
    no wider than the ratios that were seen: of five it holds the median with 94 %, of three with 75 %.
    """

    median: float
    low: float | None
    high: float | None
    level: float
    rounds: int

    @property
    def decided(self) -> bool:
        """Whether the interval leaves 1 out, and there are enough rounds for that to mean something."""
        if self.low is None or self.high is None or self.rounds < ENOUGH_ROUNDS:
            return False
        return not self.low <= 1.0 <= self.high


def matched_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    seed: int = SEED,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Ratio:
    """The median of the rounds' ratios; rounds are resampled whole, so that what they have in common cancels out.

    For speeds, take the rates: above 1 the numerator's side is the faster one. Raises ValueError for sides of
    different lengths, none, or values that aren't above 0.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError(f"matched rounds need as many values on both sides: {len(numerators)}, {len(denominators)}")
    if min(*numerators, *denominators) <= 0:
        raise ValueError("a ratio of rates takes values above 0")
    ratios = np.asarray(numerators, np.float64) / np.asarray(denominators, np.float64)
    median, n = float(np.median(ratios)), len(ratios)
    if n == 1:
        return Ratio(median, None, None, level, n)
    drawn = np.random.default_rng(seed).integers(0, n, (resamples, n))
    medians = np.median(ratios[drawn], axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return Ratio(median, float(low), float(high), level, n)
