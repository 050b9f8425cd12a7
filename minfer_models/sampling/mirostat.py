"""Mirostat: keeps the surprise of the chosen tokens near a target by moving where the distribution is cut.

S. Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", ICLR 2021, and its
version 2, https://github.com/basusourya/mirostat
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.candidates import Candidates, Floats, of_row
from minfer_models.sampling.largest import Largest, below_all, k_largest
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.weights import Logits, scale_of

RANKED = 100
"""Most likely tokens from which version 1 estimates the exponent of Zipf's law."""


class Mirostat:
    """Cuts the distribution at the current `mu` bits and learns from what was chosen.

    The surprise of a token is that under the whole distribution at the temperature, as in the paper; llama.cpp takes it
    after the cut.
    """

    def __init__(self, params: SamplingParams, n: int) -> None:
        self._version, self._tau, self._eta = params.mirostat, float(params.mirostat_tau), float(params.mirostat_eta)
        self._scale = scale_of(params.temperature)
        self._n = n
        self._mus = [2.0 * self._tau]

    @property
    def mu(self) -> float:
        """The largest surprise, in bits, that version 2 lets through."""
        return self._mus[-1]

    def cut(self, row: Logits, largest: Largest, best: int) -> tuple[Candidates, float]:
        """What can be chosen, logits divided by the temperature, and the log2 of the sum of exp over all of the row."""
        top = float(row[best])
        bits = math.log2(float(largest.masses(row, top, self._scale).sum(dtype=np.float64)))
        if self._version == 1:
            ids = self._most_likely(row, largest)
            return replace(of_row(ids, row[ids], top), scale=self._scale), bits
        lowest = (bits - self.mu) * math.log(2)
        found = replace(of_row(*largest.above(row, below_all(top + lowest / self._scale)), top), scale=self._scale)
        inside = found.below.astype(np.float64) * self._scale >= lowest
        if not inside.any():
            return Candidates(np.array([best]), np.zeros(1, np.float32), self._scale), bits
        return found.kept(inside), bits

    def learn(self, below: float, bits: float) -> None:
        """The token just taken was chosen: its logit is `below` the largest, `bits` is what `cut` returned."""
        surprise = bits - below * self._scale / math.log(2)
        self._mus[-1] -= self._eta * (surprise - self._tau)

    def step(self) -> None:
        """A token was taken; nothing is learnt from one that came from elsewhere."""
        self._mus.append(self.mu)

    def rewind(self, n: int) -> None:
        """Forget the last n tokens."""
        del self._mus[len(self._mus) - n :]

    def _most_likely(self, row: Logits, largest: Largest) -> NDArray[np.int64]:
        """Version 1: the k most likely tokens, k from the estimated exponent."""
        found = largest.top_k(row)
        assert found is not None  # the row was looked at before
        ids, values = found
        ranked = np.sort(values.astype(np.float64))[::-1] * self._scale
        k = most_for(zipf_exponent(ranked[: RANKED + 1]), self.mu, self._n)
        if k > len(ids):
            return k_largest(row[: self._n], k)
        return ids[np.sort((-values).argsort(kind="stable")[:k])]


def zipf_exponent(logits: Floats) -> float:
    """The least-squares estimate of s in p_i ~ 1 / i^s from the logits, descending; 1 from fewer than two."""
    if len(logits) < 2:
        return 1.0
    ranks = np.arange(1, len(logits))
    t, b = np.log((ranks + 1) / ranks), logits[:-1] - logits[1:]
    return float((t * b).sum() / (t * t).sum())


def most_for(s: float, mu: float, n: int) -> int:
    """How many most likely tokens to keep: (eps * 2^mu / (1 - n^-eps)) ^ (1/s), eps = s - 1; from 1 to n."""
    if s <= 0 or n == 1:
        return n
    eps = s - 1.0
    share = 1 / math.log(n) if abs(eps) < 1e-9 else eps / -math.expm1(-eps * math.log(n))
    # by its logarithm: 2^mu leaves the range of floats
    exponent = (math.log2(share) + mu) / s
    return n if exponent >= math.log2(n) else max(round(2.0**exponent), 1)
