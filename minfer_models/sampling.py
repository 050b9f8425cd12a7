"""Choosing the next token from one row of logits.

Filters run in llama.cpp's order on the unscaled distribution: top-k, top-p, min-p, then temperature. A choice depends
only on the seed, the step and the row.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
Probabilities = npt.NDArray[np.float64]

_SEED_LIMIT = 1 << 64
_BINS_PER_NAT = 64
_DRAWN_AHEAD = 64
_FEW = 1024
_BINS = 40 * _BINS_PER_NAT  # the last bin takes everything less likely than e^-40 of the top


class SamplingError(ValueError):
    """A sampling setting out of range, or logits nothing can be chosen from; the message has the value."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose a token.

    temperature: 0 takes the most likely token, the lowest id on ties; above 0 divides the logits.
    top_k: keep the k most likely tokens, 0 keeps all.
    top_p: keep the fewest most likely tokens whose probabilities reach p; 1 keeps all, 0 one.
    min_p: keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
    seed: 0 to 2^64-1; None or -1 draws one, which the Sampler reports.
    At equal logits lower ids come first. Raises SamplingError naming the setting, its value and its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None

    def __post_init__(self) -> None:
        _require_number("temperature", self.temperature, "at least 0", low=0.0)
        _require_integer("top_k", self.top_k, "at least 0 (0: off)", low=0)
        _require_number("top_p", self.top_p, "between 0 and 1", low=0.0, high=1.0)
        _require_number("min_p", self.min_p, "between 0 and 1", low=0.0, high=1.0)
        if self.seed is not None:
            _require_integer("seed", self.seed, "between 0 and 2^64-1, or -1 (random)", low=-1, high=_SEED_LIMIT - 1)


class Largest(Protocol):
    """A native look at the first n logits of a row, for one caller at a time."""

    def argmax(self, row: Logits) -> int:
        """The lowest id of the largest; -1 when one is NaN or +inf, or all are -inf."""
        ...

    def top_k(self, row: Logits) -> tuple[npt.NDArray[np.int64], Logits]:
        """Ids, ascending, and values of the k largest above -inf, lower ids first; none for NaN or +inf."""
        ...


class Sampler:
    """Chooses one token a step from rows of n_vocab logits, never an id of `decodable` or above.

    seed: the seed in use, also when it was drawn. step: how many tokens were chosen; setting it back repeats choices.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        decodable: int | None = None,
        largest: Callable[[int, int], Largest | None] = lambda _n, _k: None,
    ) -> None:
        """decodable: ids that stand for text, where the logits are wider than the vocabulary; None for all.

        largest: makes what looks for the k largest of the first n logits natively, None where that can't be. The
        choices are the same.
        """
        self.params = params
        self.n_vocab = n_vocab
        self.decodable = n_vocab if decodable is None else min(decodable, n_vocab)
        if self.decodable < 1:
            raise SamplingError(f"no token can be chosen: {self.decodable} of {n_vocab} ids are decodable")
        self.seed = secrets.randbits(32) if params.seed is None or params.seed == -1 else int(params.seed)
        self.step = 0
        self._shape = (n_vocab,)
        self._k = 1 if params.temperature == 0 else params.top_k
        self._largest = largest(self.decodable, self._k) if 0 < self._k <= self.decodable else None
        self._uniforms: list[float] = []
        self._uniforms_from = 0

    def sample(self, logits: Logits) -> int:
        """The id chosen from logits [n_vocab] at this step, which then advances.

        Raises SamplingError for another shape, or NaN, +inf or only -inf among the decodable logits.
        """
        if self.params.temperature == 0:
            best = self._best(logits)
            self.step += 1
            return best
        ids, weights = self._weights(*self._candidates(logits))
        bound = weights.cumsum()
        step, self.step = self.step, self.step + 1
        return int(ids[bound.searchsorted(self._uniform(step) * bound[-1], side="right")])

    def distribution(self, logits: Logits) -> tuple[Ids, Probabilities]:
        """The ids that can be chosen from logits [n_vocab], ascending, and their probabilities.

        Raises SamplingError as `sample`.
        """
        if self.params.temperature == 0:
            return np.array([self._best(logits)], dtype=np.intp), np.ones(1)
        ids, weights = self._weights(*self._candidates(logits))
        return ids, weights / weights.sum()

    def _best(self, logits: Logits) -> int:
        """The most likely id."""
        if self._largest is not None and logits.shape == self._shape:
            best = self._largest.argmax(logits)
            if best >= 0:
                return best
        return self._checked(logits)[1]

    def _candidates(self, logits: Logits) -> tuple[Ids, Probabilities]:
        """The ids that top-k keeps, ascending, and their logits."""
        if self._largest is not None and logits.shape == self._shape:
            ids, values = self._largest.top_k(logits)
            if len(ids) == self._k:
                return ids, values.astype(np.float64)
        row, _ = self._checked(logits)
        ids = _top_k(row, self.params.top_k)
        return ids, row[ids].astype(np.float64)

    def _checked(self, logits: Logits) -> tuple[Logits, int]:
        if logits.shape != self._shape:
            raise SamplingError(f"logits have shape {logits.shape}, not ({self.n_vocab},)")
        row = logits[: self.decodable]
        best = int(np.argmax(row))  # the first NaN, if there is one: numpy orders NaN above all
        top = float(row[best])
        if math.isfinite(top):
            return row, best
        why = "every logit is -inf" if top == -math.inf else f"the logit of id {best} is {top}"
        raise SamplingError(f"no token can be chosen at step {self.step}: {why}")

    def _weights(self, ids: Ids, logits: Probabilities) -> tuple[Ids, Probabilities]:
        """The ids that pass the other filters, ascending, each with its probability up to a factor."""
        params, top = self.params, logits.max()
        below = logits - top
        if params.top_p < 1:
            kept = _top_p(below, params.top_p)
            ids, below = ids[kept], below[kept]
        if params.min_p > 0:
            kept = below >= math.log(params.min_p)
            ids, below = ids[kept], below[kept]
        return ids, np.exp(below / params.temperature)

    def _uniform(self, step: int) -> float:
        """One number in [0, 1) from a counter-based generator: (seed, step) alone decides."""
        at = step - self._uniforms_from
        if not 0 <= at < len(self._uniforms):
            # A generator costs 20 us, so it draws for many steps: the first of each counter's four words.
            words = np.random.Philox(key=self.seed, counter=step).random_raw(4 * _DRAWN_AHEAD)[::4]
            self._uniforms, self._uniforms_from, at = ((words >> 11) * 2.0**-53).tolist(), step, 0
        return self._uniforms[at]


def _top_k(row: Logits, k: int) -> Ids:
    """Ids of the k largest logits, ascending; the lowest ids where logits tie for the last places."""
    if k == 0 or k >= len(row):
        return np.arange(len(row))
    last = np.partition(row, len(row) - k)[len(row) - k]
    above = np.flatnonzero(row > last)
    ties = np.flatnonzero(row == last)[: k - len(above)]
    return np.sort(np.concatenate([above, ties]))


def _top_p(below: Probabilities, p: float) -> npt.NDArray[np.intp]:
    """The fewest candidates, at least one, whose probabilities reach p, ascending; `below` is logit - top logit.

    Of many candidates, it sums probability by distance and sorts only the bin where the sum reaches p: sorting all of
    151,936 flat logits took 22 ms.
    """
    weights = np.exp(below)
    if len(below) <= _FEW:
        order = (-below).argsort(kind="stable")
        inside = weights[order].cumsum()
        keep = order[: int(inside.searchsorted(p * inside[-1])) + 1]
        keep.sort()
        return keep
    bins = np.minimum(-below * _BINS_PER_NAT, _BINS - 1).astype(np.intp)
    reached = np.cumsum(np.bincount(bins, weights, minlength=_BINS))
    goal = p * reached[-1]
    edge = min(int(np.searchsorted(reached, goal)), _BINS - 1)
    in_edge = np.flatnonzero(bins == edge)
    order = in_edge[np.argsort(-below[in_edge], kind="stable")]
    inside = np.cumsum(weights[order]) + (reached[edge - 1] if edge else 0.0)
    keep = order[: int(np.searchsorted(inside, goal)) + 1]
    return np.sort(np.concatenate([np.flatnonzero(bins < edge), keep]))


def _require_number(name: str, value: Any, allowed: str, low: float, high: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise SamplingError(f"{name} is {value!r}; it must be a number {allowed}")
    if not (math.isfinite(value) and low <= value <= high):
        raise SamplingError(f"{name} is {value!r}; it must be {allowed}")


def _require_integer(name: str, value: Any, allowed: str, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise SamplingError(f"{name} is {value!r}; it must be an integer {allowed}")
    if value < low or (high is not None and value > high):
        raise SamplingError(f"{name} is {value!r}; it must be {allowed}")
