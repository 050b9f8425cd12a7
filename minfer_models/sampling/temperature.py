"""Temperature, fixed or following the entropy of the distribution.

The dynamic one is llama.cpp's, after K. Kobold (kalomaze), "Dynamic Temperature", 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from minfer_models.sampling.candidates import Candidates
from minfer_models.sampling.weights import scale_of


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the logits. With a `spread`, by a temperature from `value - spread` (at least 0) to `value + spread`."""

    value: float
    spread: float = 0.0
    exponent: float = 1.0

    def __call__(self, candidates: Candidates, _step: int = 0) -> Candidates:
        """The same tokens, their logits divided; at a temperature of 0 the most likely one alone."""
        temperature = self.of(candidates)
        if temperature == 0:
            return candidates.kept(candidates.most_likely_first()[:1])
        return replace(candidates, scale=scale_of(temperature))

    def of(self, candidates: Candidates) -> float:
        """low + (high - low) * (entropy / log(n)) ** exponent, the entropy of the n candidates at temperature 1."""
        n = len(candidates.ids)
        if self.spread == 0 or n == 1:
            return self.value
        weights = candidates.weights()
        total = weights.sum()
        surprise = math.log(total) - candidates.below.astype(np.float64)
        entropy = float((weights * surprise).sum() / total)
        low, high = max(0.0, self.value - self.spread), self.value + self.spread
        share = min(max(entropy / math.log(n), 0.0), 1.0)
        return low + (high - low) * float(np.power(share, self.exponent))
