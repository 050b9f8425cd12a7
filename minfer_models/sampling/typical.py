"""Locally typical sampling: tokens whose surprise is nearest to the distribution's entropy.

C. Meister et al., "Locally Typical Sampling", TACL 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minfer_models.sampling.candidates import Candidates


@dataclass(frozen=True, slots=True)
class Typical:
    """Keeps at least one token: the fewest whose probabilities reach p, the most typical first."""

    p: float

    def __call__(self, candidates: Candidates, _step: int = 0) -> Candidates:
        """The typical ones."""
        weights = candidates.weights()
        probabilities = weights / weights.sum()
        surprise = np.log(weights.sum()) - candidates.below.astype(np.float64)
        entropy = float((probabilities * surprise).sum())
        order = np.abs(surprise - entropy).argsort(kind="stable")
        inside = probabilities[order].cumsum()
        keep = order[: int(inside.searchsorted(self.p * inside[-1])) + 1]
        keep.sort()
        return candidates.kept(keep).rebased()
