"""Top-p (nucleus): the fewest most likely tokens whose probabilities reach p.

A. Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.candidates import Candidates, Floats

SHARES = 1 << 53
_FEW = 1024
_BINS_PER_NAT = 64
_BINS = 40 * _BINS_PER_NAT
"""The last bin takes everything less likely than e^-40 of the most likely token."""


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps at least one token."""

    p: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", self.share / SHARES)

    @property
    def share(self) -> int:
        """p in units of 2^-53, as native code takes it."""
        return round(self.p * SHARES)

    def __call__(self, candidates: Candidates, _step: int = 0) -> Candidates:
        """Those inside the nucleus."""
        weights = candidates.weights()
        if len(weights) <= _FEW:
            return candidates.kept(_among_few(candidates, weights, self.p))
        return candidates.kept(_among_many(candidates, weights, self.p))

    def reached(self, candidates: Candidates) -> bool:
        """Whether the candidates have the whole nucleus of their row."""
        return candidates.total is None or float(candidates.weights().sum()) >= self.p * candidates.total


def _among_few(candidates: Candidates, weights: Floats, p: float) -> NDArray[np.intp]:
    order = candidates.most_likely_first()
    inside = weights[order].cumsum()
    total = inside[-1] if candidates.total is None else candidates.total
    keep = order[: int(inside.searchsorted(p * total)) + 1]
    keep.sort()
    return keep


def _among_many(candidates: Candidates, weights: Floats, p: float) -> NDArray[np.intp]:
    """Sums probability by distance and sorts only the bin where the sum reaches p: sorting 151,936 took 22 ms."""
    below = candidates.below.astype(np.float64)
    bins = np.minimum(-below * _BINS_PER_NAT, _BINS - 1).astype(np.intp)
    reached = np.cumsum(np.bincount(bins, weights, minlength=_BINS))
    goal = p * (reached[-1] if candidates.total is None else candidates.total)
    edge = min(int(np.searchsorted(reached, goal)), _BINS - 1)
    in_edge = np.flatnonzero(bins == edge)
    order = in_edge[np.argsort(-below[in_edge], kind="stable")]
    inside = np.cumsum(weights[order]) + (reached[edge - 1] if edge else 0.0)
    keep = order[: int(np.searchsorted(inside, goal)) + 1]
    return np.sort(np.concatenate([np.flatnonzero(bins < edge), keep]))
