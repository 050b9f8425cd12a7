"""Min-p: tokens at least a fraction as likely as the most likely one.

N. N. Minh et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", ICLR 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minfer_models.sampling.candidates import Candidates


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps at least one token. p above 0."""

    p: float

    @property
    def lowest(self) -> float:
        """How far below the largest a logit may be, a float32."""
        return float(np.float32(math.log(self.p)))

    def __call__(self, candidates: Candidates, _step: int = 0) -> Candidates:
        """Those likely enough."""
        return candidates.kept(candidates.below >= self.lowest)
