"""The tokens of one sequence as penalties see them: the prompt, and what was generated behind it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
_ROOM = 256


class History:
    """Grows by a token a step; looking at it costs what is looked at, not what there is.

    length: tokens of prompt and text; n_generated: those behind the prompt. Of the arrays, which don't have the `new`
    tokens before `settle`: ids int64 [room] are the tokens, of which the first `length` count; distinct, counts int64
    [room] generated tokens and how often, of which the first n_distinct[0] count. They are the same arrays until they
    are full.
    """

    def __init__(self, prompt: Iterable[int] = ()) -> None:
        start = np.fromiter(prompt, np.int64)
        self.n_prompt = self.length = len(start)
        self.n_generated = 0
        # Most samplers never ask for more than the lengths.
        self.new: list[int] = []
        self.room = self.length + _ROOM
        self.ids = np.empty(self.room, np.int64)
        self.ids[: self.length] = start
        self.distinct, self.counts = np.empty(self.room, np.int64), np.zeros(self.room, np.int64)
        self.n_distinct = np.zeros(1, np.int64)

    def generated(self) -> Ids:
        """The tokens behind the prompt; a view."""
        self.settle()
        return self.ids[self.n_prompt : self.length]

    def recent(self, n: int) -> Ids:
        """The last n tokens of prompt and text, -1 for all; a view."""
        self.settle()
        return self.ids[0 if n < 0 else max(self.length - n, 0) : self.length]

    def append(self, token_id: int) -> None:
        """One more token."""
        self.new.append(token_id)
        self.length += 1
        self.n_generated += 1

    def settle(self) -> None:
        """Bring the arrays up to date."""
        if self.length > self.room:
            self._grow(2 * self.length)
        at = self.length - len(self.new)
        for token_id in self.new:
            slot = self._slot(token_id)
            if slot == self.n_distinct[0]:
                self.distinct[slot], self.counts[slot] = token_id, 0
                self.n_distinct[0] = slot + 1
            self.counts[slot] += 1
            self.ids[at] = token_id
            at += 1
        self.new.clear()

    def rewind(self, n: int) -> None:
        """Take the last n generated tokens back."""
        if not 0 <= n <= self.n_generated:
            raise ValueError(f"{n} tokens can't be taken back: {self.n_generated} were generated")
        self.settle()
        for token_id in self.ids[self.length - n : self.length].tolist():
            self._forget(token_id)
        self.length -= n
        self.n_generated -= n

    def _forget(self, token_id: int) -> None:
        slot, last = self._slot(token_id), int(self.n_distinct[0]) - 1
        self.counts[slot] -= 1
        if not self.counts[slot]:
            self.distinct[slot], self.counts[slot] = self.distinct[last], self.counts[last]
            self.n_distinct[0] = last

    def _slot(self, token_id: int) -> int:
        """Where the token is among the distinct ones, or the first place behind them."""
        n = int(self.n_distinct[0])
        found = np.flatnonzero(self.distinct[:n] == token_id)
        return int(found[0]) if len(found) else n

    def _grow(self, room: int) -> None:
        for name in ("ids", "distinct", "counts"):
            grown = np.zeros(room, np.int64)
            grown[: self.room] = getattr(self, name)
            setattr(self, name, grown)
        self.room = room
