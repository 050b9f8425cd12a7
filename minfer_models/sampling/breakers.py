"""Texts that end a repetition: where they are in a sequence of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minfer_models.sampling.history import History, Ids


class Breakers:
    """Finds texts in what tokens spell, also where one is spread over several tokens or lies inside of one."""

    def __init__(self, texts: Sequence[str], bytes_of: Callable[[int], bytes]) -> None:
        self._texts = [text.encode() for text in texts]
        self._reach = max((len(text) for text in self._texts), default=0) - 1
        self._bytes_of = bytes_of
        self._pieces: dict[int, bytes] = {}
        self._behind: list[int] = []

    def inside(self, token_id: int) -> bool:
        """Whether the token spells a whole breaker."""
        piece = self._piece(token_id)
        return any(text in piece for text in self._texts)

    def tokens_behind(self, history: History) -> int:
        """How many tokens there are behind the last one in which a breaker ends; all, where there is none."""
        if not self._texts:
            return history.length
        ids = history.recent(-1)
        for at in range(len(self._behind), history.length):
            ends = self._ends_in(ids, at)
            self._behind.append(0 if ends else (self._behind[-1] if self._behind else 0) + 1)
        return self._behind[-1] if self._behind else 0

    def rewind(self, length: int) -> None:
        """Forget what lies behind the first `length` tokens: others may come there."""
        del self._behind[length:]

    def _ends_in(self, ids: Ids, at: int) -> bool:
        piece = self._piece(int(ids[at]))
        before, i = b"", at - 1
        while len(before) < self._reach and i >= 0:
            before, i = self._piece(int(ids[i])) + before, i - 1
        text = before + piece
        return any(text.find(breaker, max(0, len(before) - len(breaker) + 1)) >= 0 for breaker in self._texts)

    def _piece(self, token_id: int) -> bytes:
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._bytes_of(token_id)
        return piece
