"""The tokens of one sequence as penalties see them: the prompt, and what was generated behind it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
_ROOM = 256


class History:
    """Grows by a token a step; looking at it costs what is looked at, not what there is."""

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        start = np.fromiter(prompt, np.int64)
        self.n_prompt = self.length = len(start)
        self._ids = np.empty(self.length + _ROOM, np.int64)
        self._ids[: self.length] = start
        self._slots: dict[int, int] = {}
        self._distinct = np.empty(_ROOM, np.int64)
        self._counts = np.zeros(_ROOM, np.int64)

    @property
    def n_generated(self) -> int:
        """Tokens behind the prompt."""
        return self.length - self.n_prompt

    def generated(self) -> Ids:
        """The tokens behind the prompt; a view."""
        return self._ids[self.n_prompt : self.length]

    def recent(self, n: int) -> Ids:
        """The last n tokens of prompt and text, -1 for all; a view."""
        return self._ids[0 if n < 0 else max(self.length - n, 0) : self.length]

    def counts(self) -> tuple[Ids, Ids]:
        """Ids that were generated and how often, 0 for those taken back; views."""
        n = len(self._slots)
        return self._distinct[:n], self._counts[:n]

    def append(self, token_id: int) -> None:
        """One more token."""
        if self.length == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
        self._ids[self.length] = token_id
        self.length += 1
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._distinct):
            self._distinct = np.concatenate([self._distinct, np.empty_like(self._distinct)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._distinct[slot] = token_id
        self._counts[slot] += 1

    def rewind(self, n: int) -> None:
        """Take the last n generated tokens back."""
        if not 0 <= n <= self.n_generated:
            raise ValueError(f"{n} tokens can't be taken back: {self.n_generated} were generated")
        for token_id in self._ids[self.length - n : self.length].tolist():
            self._counts[self._slots[token_id]] -= 1
        self.length -= n
