"""The samplers one by one, behind the edits: what can be chosen from a row, and the choice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minfer_models.sampling.candidates import Candidates, Floats, Ids
from minfer_models.sampling.largest import CHUNK, Largest
from minfer_models.sampling.min_p import MinP
from minfer_models.sampling.mirostat import Mirostat
from minfer_models.sampling.narrow import Narrow
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.refusal import NothingToChooseError
from minfer_models.sampling.temperature import Temperature
from minfer_models.sampling.top_p import TopP
from minfer_models.sampling.typical import Typical
from minfer_models.sampling.uniforms import Uniforms
from minfer_models.sampling.weights import Logits, scale_of, weights
from minfer_models.sampling.xtc import Xtc

Filter = Callable[[Candidates, int], Candidates]


class OneByOne:
    """Chooses from the first n logits of rows. Its methods raise NothingToChooseError for NaN, +inf, or all -inf.

    mirostat: what has to hear of tokens that come from elsewhere and are taken back, where there is one.
    """

    def __init__(
        self,
        params: SamplingParams,
        stages: tuple[str, ...],
        n: int,
        largest: Largest,
        narrow: Narrow,
        uniforms: Uniforms,
    ) -> None:
        self._n, self._largest, self._narrow, self._uniforms = n, largest, narrow, uniforms
        self._greedy = "greedy" in stages
        self.mirostat = Mirostat(params, n) if "mirostat" in stages else None
        self._filters = filters(params, stages, uniforms)
        # nothing but a fixed temperature: no list of candidates is made
        self._scale = None if truncated(params, stages, n) else scale_of(params.temperature)

    def choose(self, row: Logits, step: int) -> tuple[int, float, float]:
        """An id; with mirostat, what it learns from."""
        if self._greedy:
            return self._best(row), 0.0, 0.0
        if self._scale is not None:
            return self._draw_wide(row, self._scale, step), 0.0, 0.0
        candidates, bits = self._candidates(row, step)
        at = self._drawn(candidates.weights(), step)
        return int(candidates.ids[at]), float(candidates.below[at]), bits

    def distribution(self, row: Logits, step: int) -> tuple[Ids, Floats]:
        """The ids that can be chosen, ascending, and their probabilities."""
        if self._greedy:
            return np.array([self._best(row)], dtype=np.intp), np.ones(1)
        if self._scale is not None:
            top = float(row[self._best(row)])
            found = weights(row[: self._n], top, self._scale).astype(np.float64)
            ids = np.flatnonzero(row[: self._n] > -np.inf)
            return ids, found[ids] / found.sum()
        candidates, _ = self._candidates(row, step)
        found = candidates.weights()
        return candidates.ids.copy(), found / found.sum()

    def _best(self, row: Logits) -> int:
        """The most likely id."""
        best = self._largest.argmax(row)
        if best < 0:
            raise NothingToChooseError
        return best

    def _candidates(self, row: Logits, step: int) -> tuple[Candidates, float]:
        """What can be chosen, and what mirostat learns from."""
        if self.mirostat is not None:
            return self.mirostat.cut(row, self._largest, self._best(row))
        candidates = self._narrow(row, self._largest)
        if candidates is None:
            raise NothingToChooseError
        for keep in self._filters:
            candidates = keep(candidates, step)
        return candidates, 0.0

    def _drawn(self, found: Floats, step: int) -> int:
        """The index that the step's number falls on, by weight."""
        bound = found.cumsum()
        return int(bound.searchsorted(self._uniforms.draw(step) * bound[-1], side="right"))

    def _draw_wide(self, row: Logits, scale: float, step: int) -> int:
        """A token of the whole row: first its chunk by the chunks' masses, then the token."""
        top = float(row[self._best(row)])
        bound = self._largest.masses(row, top, scale).cumsum(dtype=np.float64)
        goal = self._uniforms.draw(step) * bound[-1]
        chunk = int(bound.searchsorted(goal, side="right"))
        start = chunk * CHUNK
        before = bound[chunk - 1] if chunk else 0.0
        inside = weights(row[start : min(start + CHUNK, self._n)], top, scale).cumsum(dtype=np.float64)
        # the chunk's mass is a float32: its share is carried over to the exact sum
        share = (goal - before) / (bound[chunk] - before)
        at = int(inside.searchsorted(share * inside[-1], side="right"))
        return start + min(at, int(inside.searchsorted(inside[-1])))


def filters(params: SamplingParams, stages: tuple[str, ...], uniforms: Uniforms) -> list[Filter]:
    """What drops candidates and divides their logits, in the pipeline's order."""
    p = params
    makers: dict[str, Callable[[], Filter]] = {
        "typical": lambda: Typical(float(p.typical_p)),
        "top_p": lambda: TopP(float(p.top_p)),
        "min_p": lambda: MinP(float(p.min_p)),
        "xtc": lambda: Xtc(float(p.xtc_probability), float(p.xtc_threshold), uniforms),
        "temperature": lambda: Temperature(float(p.temperature), float(p.dynatemp_range), float(p.dynatemp_exponent)),
    }
    return [makers[name]() for name in stages if name in makers]


def truncated(params: SamplingParams, stages: tuple[str, ...], n: int) -> bool:
    """Whether there is more to do than to divide n logits by a number and draw."""
    if params.temperature == 0 or params.mirostat or params.dynatemp_range:
        return True
    named = {"top_n_sigma", "typical", "top_p", "min_p", "xtc"} & set(stages)
    return bool(named) or 0 < params.top_k < n
