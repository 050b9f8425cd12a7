"""The tokens that can still be chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.intp]
Floats = NDArray[np.float64]
Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ids, ascending, and for each its logit minus the largest logit of the row.

    total: the sum of exp(below) over the whole row, where these are only its most likely tokens; None where the
    others are out.
    """

    ids: Ids
    below: Floats
    total: float | None = None

    def kept(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Candidates:
        """Those at the index, ascending, or where a mask is set; the others are out."""
        return Candidates(self.ids[index], self.below[index])

    def weights(self) -> Floats:
        """exp of the logits, up to a factor: 1 for the most likely one."""
        return np.exp(self.below - self.below.max())

    def most_likely_first(self) -> NDArray[np.intp]:
        """Their order by probability; lower ids first where logits are equal."""
        return (-self.below).argsort(kind="stable")


def of_row(ids: Ids, values: Logits, top: float, total: float | None = None) -> Candidates:
    """Candidates from the logits [n] of ids [n] in a row whose largest logit is `top`."""
    return Candidates(ids, values.astype(np.float64) - top, total)
