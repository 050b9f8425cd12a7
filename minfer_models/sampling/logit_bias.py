"""What the caller adds to the logits of single tokens."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minfer_models.sampling.errors import SamplingError
from minfer_models.sampling.history import History
from minfer_models.sampling.weights import Logits


class LogitBias:
    """Adds `biases` to the logits of `ids`; -inf leaves a token out."""

    def __init__(self, biases: Mapping[int, float], n_vocab: int, decodable: int) -> None:
        """Raises SamplingError for an id that isn't in the vocabulary."""
        for token_id in biases:
            if token_id >= n_vocab:
                raise SamplingError(f"logit_bias has token id {token_id}; the vocabulary has ids 0 to {n_vocab - 1}")
        ids = [token_id for token_id in biases if token_id < decodable]
        self.ids = np.array(ids, np.int64)
        self.biases = np.array([biases[token_id] for token_id in ids], np.float32)
        self._before = np.empty(0, np.float32)

    def apply(self, row: Logits, history: History) -> None:
        """Change the row in place."""
        self._before = row[self.ids]
        row[self.ids] = self._before + self.biases

    def undo(self, row: Logits) -> None:
        """Change it back."""
        row[self.ids] = self._before
