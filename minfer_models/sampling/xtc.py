"""XTC, "exclude top choices": now and then, all likely tokens but the least likely of them are left out.

P. E. Weidmann, 2024, https://github.com/oobabooga/text-generation-webui/pull/6335
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minfer_models.sampling.candidates import Candidates
from minfer_models.sampling.uniforms import Uniforms


@dataclass(frozen=True, slots=True)
class Xtc:
    """Acts in a step with `probability`, on the tokens that have at least `threshold`, if there are two or more."""

    probability: float
    threshold: float
    uniforms: Uniforms

    def __call__(self, candidates: Candidates, step: int) -> Candidates:
        """All but the top choices; all, where it doesn't act."""
        if self.uniforms.coin(step) >= self.probability:
            return candidates
        weights = candidates.weights()
        likely = np.flatnonzero(weights >= self.threshold * weights.sum())
        if len(likely) < 2:
            return candidates
        least = likely[candidates.kept(likely).most_likely_first()[-1]]
        out = np.zeros(len(weights), np.bool_)
        out[likely] = True
        out[least] = False
        return candidates.kept(~out).rebased()
