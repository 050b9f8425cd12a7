"""The tokens that can still be chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.weights import Logits, weights

Ids = NDArray[np.intp]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ids, ascending, and for each its logit minus the largest logit, float32.

    scale: what the logits are multiplied with, 1 / temperature. total: the sum of weights over the whole row, where
    these are only its most likely tokens; None where the others are out.
    """

    ids: Ids
    below: Logits
    scale: float = 1.0
    total: float | None = None

    def kept(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Candidates:
        """Those at the index, ascending, or where a mask is set; the others are out."""
        return Candidates(self.ids[index], self.below[index], self.scale)

    def rebased(self) -> Candidates:
        """The same, where the most likely token may have gone."""
        return replace(self, below=self.below - self.below.max())

    def weights(self) -> Floats:
        """Their probabilities up to a factor: 1 for the most likely one."""
        return weights(self.below, 0.0, self.scale).astype(np.float64)

    def most_likely_first(self) -> NDArray[np.intp]:
        """Their order by probability; lower ids first where logits are equal."""
        return (-self.below).argsort(kind="stable")


def of_row(ids: Ids, values: Logits, top: float, total: float | None = None) -> Candidates:
    """Candidates from the logits [n] of ids [n] in a row whose largest logit is `top`."""
    with np.errstate(over="ignore"):
        return Candidates(ids, values - np.float32(top), total=total)
