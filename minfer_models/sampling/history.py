"""The tokens of one sequence as penalties see them: the prompt, and what was generated behind it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
_ROOM = 256


class History:
    """Grows by a token a step; looking at it costs what is looked at, not what there is.

    ids int64: the tokens, of which the first `length` count. distinct, counts int64: generated tokens and how often,
    0 for those taken back, of which the first `n_distinct` count. A change keeps the arrays until they are full.
    """

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        start = np.fromiter(prompt, np.int64)
        self.n_prompt = self.length = len(start)
        self.ids = np.empty(self.length + _ROOM, np.int64)
        self.ids[: self.length] = start
        self._slots: dict[int, int] = {}
        self.distinct = np.empty(_ROOM, np.int64)
        self.counts = np.zeros(_ROOM, np.int64)
        # A step behind a forward finds no code in the caches: writing through numpy costs five times as much.
        self._ids, self._distinct, self._counts = self.ids.data, self.distinct.data, self.counts.data

    @property
    def n_generated(self) -> int:
        """Tokens behind the prompt."""
        return self.length - self.n_prompt

    @property
    def n_distinct(self) -> int:
        """Different tokens that were generated, also those taken back."""
        return len(self._slots)

    def generated(self) -> Ids:
        """The tokens behind the prompt; a view."""
        return self.ids[self.n_prompt : self.length]

    def first_of(self, n: int) -> int:
        """Where the last n tokens of prompt and text start, -1 for all."""
        return 0 if n < 0 else max(self.length - n, 0)

    def recent(self, n: int) -> Ids:
        """The last n tokens of prompt and text, -1 for all; a view."""
        return self.ids[self.first_of(n) : self.length]

    def append(self, token_id: int) -> None:
        """One more token."""
        if self.length == len(self.ids):
            self.ids = np.concatenate([self.ids, np.empty_like(self.ids)])
            self._ids = self.ids.data
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self.distinct):
            self.distinct = np.concatenate([self.distinct, np.empty_like(self.distinct)])
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
            self._distinct, self._counts = self.distinct.data, self.counts.data
        self._ids[self.length] = token_id
        self.length += 1
        self._distinct[slot] = token_id
        self._counts[slot] += 1

    def rewind(self, n: int) -> None:
        """Take the last n generated tokens back."""
        if not 0 <= n <= self.n_generated:
            raise ValueError(f"{n} tokens can't be taken back: {self.n_generated} were generated")
        for token_id in self.ids[self.length - n : self.length].tolist():
            self._counts[self._slots[token_id]] -= 1
        self.length -= n
