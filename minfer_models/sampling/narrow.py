"""From a row as wide as the vocabulary to the few tokens that the samplers behind top-k look at."""

from __future__ import annotations

import math

import numpy as np

from minfer_models.sampling.candidates import Candidates, of_row
from minfer_models.sampling.largest import Largest, below_all, k_largest
from minfer_models.sampling.min_p import MinP
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.top_n_sigma import TopNSigma
from minfer_models.sampling.top_p import TopP
from minfer_models.sampling.weights import Logits

MOST_NATIVE = 1024
"""The largest k that a backend looks for."""
LOOK = 128
"""How many most likely tokens of a whole row are looked at first; mostly the rest is cut."""
_DEEPER = 2.0
"""Nats by which the floor is lowered while the nucleus isn't reached."""


class Narrow:
    """Top-n-sigma and top-k. Without them, a superset of what top-p and min-p keep, found without sorting the row."""

    def __init__(self, params: SamplingParams, n: int) -> None:
        self._n = n
        self._k = int(params.top_k) if params.top_k < n else 0
        self._sigma = TopNSigma(float(params.top_n_sigma)) if params.top_n_sigma > 0 else None
        self._top_p = TopP(float(params.top_p)) if params.top_p < 1 else None
        self._lowest = MinP(float(params.min_p)).lowest if params.min_p > 0 else -math.inf
        self._typical = params.typical_p < 1

    @property
    def whole(self) -> bool:
        """Whether the whole row is looked at, not the k most likely tokens."""
        return self._k == 0

    @property
    def k(self) -> int:
        """What a Largest for it looks for."""
        return min(self._k or LOOK, MOST_NATIVE, self._n)

    def __call__(self, row: Logits, largest: Largest) -> Candidates | None:
        """The candidates among the first n logits; None when nothing can be chosen: NaN, +inf, or all -inf."""
        if self._k:
            return self._most_likely(row, largest)
        best = largest.argmax(row)
        if best < 0:
            return None
        top = float(row[best])
        if self._sigma is not None:
            return self._above(row, largest, top, self._sigma.lowest(row[: self._n]))
        if self._typical:
            return self._above(row, largest, top, -math.inf)
        if self._top_p is not None:
            return self._nucleus(self._top_p, row, largest, top)
        return self._above(row, largest, top, self._lowest)

    def _most_likely(self, row: Logits, largest: Largest) -> Candidates | None:
        if self._k <= MOST_NATIVE:
            found = largest.top_k(row)
        elif largest.argmax(row) < 0:
            found = None
        else:
            ids = k_largest(row[: self._n], self._k)
            found = ids, row[ids]
        if found is None or not len(found[0]):
            return None
        candidates = of_row(*found, float(found[1].max()))
        return candidates if self._sigma is None else self._sigma(candidates, row[: self._n])

    def _above(self, row: Logits, largest: Largest, top: float, lowest: float) -> Candidates:
        found = of_row(*largest.above(row, below_all(top + lowest)), top)
        return found.kept(found.below >= lowest)

    def _nucleus(self, top_p: TopP, row: Logits, largest: Largest, top: float) -> Candidates:
        """The most likely tokens, down to what min-p lets through or until they are the whole nucleus."""
        total = float(largest.masses(row, top, 1.0).cumsum(dtype=np.float64)[-1])
        found = largest.top_k(row)
        assert found is not None  # the row was looked at before
        candidates = of_row(*found, top, total)
        lowest = float(candidates.below.min())
        if len(candidates.ids) < self.k or lowest < self._lowest or top_p.reached(candidates):
            return candidates
        while lowest > self._lowest and lowest > -1e3:
            lowest = max(lowest - _DEEPER, self._lowest)
            candidates = of_row(*largest.above(row, below_all(top + lowest)), top, total)
            if top_p.reached(candidates):
                return candidates
        return candidates
