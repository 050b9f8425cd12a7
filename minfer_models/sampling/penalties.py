"""Penalties on tokens that were there before.

Repetition: N. S. Keskar et al., "CTRL: A Conditional Transformer Language Model", 2019; presence and frequency: the
OpenAI API, which counts generated tokens only.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.history import History
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.weights import Logits

Ids = NDArray[np.int64]


class RowPenalties(Protocol):
    """Changes the first n logits of a row in place, float32 throughout."""

    def apply(
        self, row: Logits, tokens: Ids, start: int, stop: int, distinct: Ids, counts: Ids, n_distinct: int
    ) -> None:
        """Divide positive and multiply other logits of tokens[start:stop], once each; then by counts take some off."""
        ...

    def undo(self) -> None:
        """Put back what the last `apply` changed."""
        ...


class NumpyPenalties:
    """The same in numpy."""

    def __init__(self, n: int, repeat: float, presence: float, frequency: float) -> None:
        self._n = n
        self._repeat, self._presence, self._frequency = (np.float32(x) for x in (repeat, presence, frequency))
        self._changed: list[tuple[Logits, Ids, Logits]] = []

    def apply(
        self, row: Logits, tokens: Ids, start: int, stop: int, distinct: Ids, counts: Ids, n_distinct: int
    ) -> None:
        """As RowPenalties says."""
        recent = tokens[start:stop]
        # A token that is there twice is written twice, with the same value: it is penalized once.
        recent = recent[recent < self._n]
        before = row[recent]
        row[recent] = np.where(before > 0, before / self._repeat, before * self._repeat)
        inside = distinct[:n_distinct] < self._n
        generated, times = distinct[:n_distinct][inside], counts[:n_distinct][inside]
        between = row[generated]
        off = self._presence + times.astype(np.float32) * self._frequency
        row[generated] = np.where(times > 0, between - off, between)
        self._changed = [(row, generated, between), (row, recent, before)]

    def undo(self) -> None:
        """As RowPenalties says."""
        for row, ids, values in self._changed:
            row[ids] = values


class Penalties:
    """repeat_penalty for the last tokens, the prompt's too; presence and frequency penalties for generated ones."""

    def __init__(self, params: SamplingParams, penalties: RowPenalties) -> None:
        self._last_n, self._penalties = int(params.repeat_last_n), penalties
        self._counted = params.presence_penalty != 0 or params.frequency_penalty != 0

    def apply(self, row: Logits, history: History) -> None:
        """Change the row in place."""
        recent = history.recent(self._last_n)
        distinct = int(history.n_distinct[0]) if self._counted else 0
        start = history.length - len(recent)
        self._penalties.apply(row, history.ids, start, history.length, history.distinct, history.counts, distinct)

    def undo(self, row: Logits) -> None:
        """Change it back."""
        self._penalties.undo()


def row_penalties(params: SamplingParams) -> tuple[float, float, float]:
    """The repeat, presence and frequency penalties; those that are off change nothing."""
    repeat = 1.0 if params.repeat_last_n == 0 else float(params.repeat_penalty)
    return repeat, float(params.presence_penalty), float(params.frequency_penalty)
