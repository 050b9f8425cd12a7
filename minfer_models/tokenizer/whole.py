"""Tokens that are found in a text as they are spelled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class WholeTokens:
    """Tokens matched whole, the longest first."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = ids
        longest_first = sorted(ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """The text before each token with the token's id, then what is left with None."""
        start = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            yield text[start : match.start()], self.ids[match[0]]
            start = match.end()
        yield text[start:], None
