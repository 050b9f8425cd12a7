"""Choosing the next token from one row of logits.

Filters run in llama.cpp's order on the unscaled distribution: top-k, top-p, min-p, then temperature. A choice depends
only on the seed, the step and the row.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from minfer_models.sampling.constraint import Constraint, Mask, allowed, mask_words
from minfer_models.sampling.errors import SamplingError
from minfer_models.sampling.params import SamplingParams

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]
Probabilities = npt.NDArray[np.float64]

_BINS_PER_NAT = 64
_DRAWN_AHEAD = 64
_FEW = 1024
_BINS = 40 * _BINS_PER_NAT  # the last bin takes everything less likely than e^-40 of the top


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
    tokens: the tokens chosen so far. prompt: what came before them.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        decodable: int | None = None,
        largest: Callable[[int, int], Largest | None] = lambda _n, _k: None,
        *,
        prompt: Iterable[int] = (),
        constraint: Constraint | None = None,
    ) -> None:
        """decodable: ids that stand for text, where the logits are wider than the vocabulary; None for all.

        largest: makes what looks for the k largest of the first n logits natively, None where that can't be. The
        choices are the same. constraint: says before every choice which tokens may come, and is told what came.
        """
        self.params = params
        self.prompt = tuple(prompt)
        self.constraint = constraint
        self.tokens: list[int] = []
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
        chosen = self._choose(self._constrained(logits))
        self.accept(chosen)
        return chosen

    def accept(self, token_id: int) -> None:
        """Take a token as chosen at this step, which then advances."""
        if self.constraint is not None:
            self.constraint.accept(token_id)
        self.tokens.append(token_id)
        self.step += 1

    def _choose(self, logits: Logits) -> int:
        if self.params.temperature == 0:
            return self._best(logits)
        ids, weights = self._weights(*self._candidates(logits))
        bound = weights.cumsum()
        return int(ids[bound.searchsorted(self._uniform(self.step) * bound[-1], side="right")])

    def _constrained(self, logits: Logits) -> Logits:
        """The logits with -inf where the constraint says no; NaN and +inf stay an error there too."""
        mask = None if self.constraint is None else self.constraint.mask()
        if mask is None:
            return logits
        self._checked(logits)
        masked = np.where(self._allowed(mask), logits[: self.decodable], np.float32(-math.inf))
        if not (masked > -math.inf).any():
            raise SamplingError(f"no token can be chosen at step {self.step}: the constraint allows none")
        row = np.full(self.n_vocab, -math.inf, np.float32)
        row[: self.decodable] = masked
        return row

    def _allowed(self, mask: Mask) -> npt.NDArray[np.bool_]:
        if len(mask) < mask_words(self.decodable):
            raise SamplingError(f"the constraint's mask has {len(mask)} words, fewer than {self.decodable} tokens take")
        return allowed(mask, self.decodable)

    def distribution(self, logits: Logits) -> tuple[Ids, Probabilities]:
        """The ids that can be chosen from logits [n_vocab], ascending, and their probabilities.

        Raises SamplingError as `sample`.
        """
        logits = self._constrained(logits)
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
