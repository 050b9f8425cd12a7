"""Penalties on tokens that were there before.

Repetition: N. S. Keskar et al., "CTRL: A Conditional Transformer Language Model", 2019; presence and frequency: the
OpenAI API, which counts generated tokens only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minfer_models.sampling.candidates import Logits
from minfer_models.sampling.history import History


@dataclass(frozen=True, slots=True)
class RepeatPenalty:
    """Divides positive and multiplies other logits of the last `last_n` tokens, the prompt's too; -1: of all."""

    penalty: float
    last_n: int

    def __call__(self, row: Logits, history: History) -> None:
        """Change the row in place."""
        recent = history.recent(self.last_n)
        ids = recent[recent < len(row)]
        # A token that is there twice is written twice, with the same value: it is penalized once.
        before = row[ids].astype(np.float64)
        row[ids] = np.where(before > 0, before / self.penalty, before * self.penalty)


@dataclass(frozen=True, slots=True)
class OpenAIPenalties:
    """Takes `presence` off the logits of generated tokens, and `frequency` for each time they were."""

    presence: float
    frequency: float

    def __call__(self, row: Logits, history: History) -> None:
        """Change the row in place."""
        ids, counts = history.counts()
        row[ids] -= np.where(counts > 0, self.presence, 0.0) + counts * self.frequency
