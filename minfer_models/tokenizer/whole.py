"""Tokens that are found in a text as they are spelled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class WholeTokens:
    """Tokens matched whole, the longest first.

    Looked up by length where a first character stands: an expression of all of them would try each at every such
    place, and takes seconds to compile for the hundreds of thousands that a file may declare.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = ids
        lengths: dict[str, set[int]] = {}
        for token in filter(None, ids):
            lengths.setdefault(token[0], set()).add(len(token))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile(f"[{''.join(map(re.escape, self._lengths))}]") if lengths else None

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """The text before each token with the token's id, then what is left with None."""
        start = at = 0
        while self._first is not None and (match := self._first.search(text, at)) is not None:
            at = match.start()
            token = self._token_at(text, at)
            if token is None:
                at += 1
                continue
            yield text[start:at], self.ids[token]
            start = at = at + len(token)
        yield text[start:], None

    def _token_at(self, text: str, at: int) -> str | None:
        left = len(text) - at
        pieces = (text[at : at + length] for length in self._lengths[text[at]] if length <= left)
        return next((piece for piece in pieces if piece in self.ids), None)
