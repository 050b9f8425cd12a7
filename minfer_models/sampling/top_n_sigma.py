"""Top-n-sigma: logits within n standard deviations of the largest.

C. Tang et al., "Top-n-sigma: Not All Logits Are You Need", ACL 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minfer_models.sampling.candidates import Candidates
from minfer_models.sampling.weights import Logits

_LOWEST = -float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class TopNSigma:
    """Keeps at least one token. The deviation is that of the whole row, without logits of -inf."""

    n: float

    def lowest(self, row: Logits) -> float:
        """How far below the largest a logit of the row [n] may be."""
        wide = row.astype(np.float64)
        if not np.isfinite(wide.min()):
            wide = wide[wide > -np.inf]
        lowest = -self.n * float(wide.std())
        return lowest if lowest >= _LOWEST else -math.inf

    def __call__(self, candidates: Candidates, row: Logits) -> Candidates:
        """Those that are near enough."""
        return candidates.kept(candidates.below >= self.lowest(row))
