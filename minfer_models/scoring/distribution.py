"""Next-token distributions in float64: their logarithms, and how far one is from another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.scoring.windows import ScoringError

Logits = NDArray[np.floating[Any]]
Rows = NDArray[np.float64]


def log_softmax(logits: Logits) -> Rows:
    """The logarithms of the probabilities, along the last axis. Raises ScoringError for NaN or infinity."""
    if not np.isfinite(logits).all():
        raise ScoringError("the model's logits hold NaN or infinity: they are no distribution")
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def kl_divergence(p: Rows, q: Rows) -> Rows:
    """KL(p || q) in nats along the last axis, both given by their logarithms.

    Rounding can leave that of equal rows below 0 by 1e-16; it counts as 0.
    """
    return np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0.0)
