"""DRY, "don't repeat yourself": a token that would continue a repetition is penalized by the repetition's length.

P. E. Weidmann, 2024, https://github.com/oobabooga/text-generation-webui/pull/5677
"""

from __future__ import annotations

import math

import numpy as np

from minfer_models.sampling.breakers import Breakers
from minfer_models.sampling.history import History, Ids
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.weights import Logits

_LOG_OF_LARGEST = math.log(float(np.finfo(np.float32).max))
_LOWEST = float(np.finfo(np.float32).min)


class Dry:
    """multiplier * base ** (length - allowed) for the token behind each earlier occurrence of the last `length` tokens.

    Of a token behind several, the longest counts. Lengths below `allowed` are free; none reaches over a breaker, and a
    token that spells a breaker is never penalized.
    """

    def __init__(self, params: SamplingParams, breakers: Breakers, n: int) -> None:
        self._multiplier, self._base = float(params.dry_multiplier), float(params.dry_base)
        self._allowed, self._last_n = int(params.dry_allowed_length), int(params.dry_penalty_last_n)
        self._breakers, self._n = breakers, n
        self._before: dict[int, float] = {}
        # Longer repetitions cost no more: as in llama.cpp, powers beyond float32 are capped.
        self._most = math.inf
        if self._base > 1:
            self._most = self._allowed + int(_LOG_OF_LARGEST / math.log(self._base))

    def apply(self, row: Logits, history: History) -> None:
        """Change the row in place."""
        self._before = {}
        for token_id, length in self.repetitions(history).items():
            if token_id < self._n and not self._breakers.inside(token_id):
                before = self._before[token_id] = float(row[token_id])
                penalty = self._multiplier * self._base ** (length - self._allowed)
                row[token_id] = max(before - penalty, _LOWEST) if before > -np.inf else before

    def undo(self, row: Logits) -> None:
        """Change it back."""
        for token_id, before in self._before.items():
            row[token_id] = before

    def repetitions(self, history: History) -> dict[int, int]:
        """Token ids that would continue a repetition of at least the allowed length, each with its length."""
        recent = history.recent(self._last_n)
        longest = int(min(self._breakers.tokens_behind(history), len(recent) - 1, self._most))
        if longest < self._allowed:
            return {}
        return _longest(recent, self._allowed, longest)


def _longest(ids: Ids, allowed: int, longest: int) -> dict[int, int]:
    """For each token behind an earlier occurrence of the last ids: the occurrence's length, from allowed to longest."""
    last = len(ids) - 1
    ends = np.flatnonzero(ids[:last] == ids[last])
    found: dict[int, int] = {}
    length = 1
    while len(ends):
        if length >= allowed:
            found.update(dict.fromkeys(ids[ends + 1].tolist(), length))
        if length == longest:
            break
        ends = ends[ends >= length]
        ends = ends[ids[ends - length] == ids[last - length]]
        length += 1
    return found
