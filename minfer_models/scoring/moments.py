"""Means with their standard errors, from sums that grow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its standard error."""

    value: float
    error: float


class Moments:
    """Sums of one or several values per token; means, and covariances of the means, come from them."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self._sum = np.zeros(width)
        self._products = np.zeros((width, width))

    def add(self, values: NDArray[np.float64]) -> None:
        """Values `[n, width]` of n further tokens."""
        self.count += len(values)
        self._sum += values.sum(axis=0)
        self._products += values.T @ values

    def mean(self) -> NDArray[np.float64]:
        """Means `[width]`."""
        return self._sum / self.count

    def weighted(self, weights: list[float]) -> Estimate:
        """The mean of a weighted sum of the values, with its standard error."""
        w, mean = np.array(weights), self.mean()
        covariance = self._products / self.count - np.outer(mean, mean)
        variance = max(float(w @ covariance @ w), 0.0)
        error = math.sqrt(variance / (self.count - 1)) if self.count > 1 else math.nan
        return Estimate(float(w @ mean), error)

    def exponential(self, weights: list[float]) -> Estimate:
        """`exp` of a weighted mean; the error by its slope."""
        mean = self.weighted(weights)
        value = math.exp(mean.value) if mean.value < math.log(np.finfo(float).max) else math.inf
        return Estimate(value, value * mean.error)
