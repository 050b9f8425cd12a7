"""Scores of pieces as merges in rank order."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

# Up to here a piece is cut at every place, which costs the square of its length. SentencePiece trains up to 16.
_LONG: Final = 256


class Halves:
    """The texts that two pieces make together."""

    def __init__(self, pieces: Container[str]) -> None:
        self._pieces = pieces

    def __contains__(self, text: str) -> bool:
        return any(text[:cut] in self._pieces and text[cut:] in self._pieces for cut in range(1, len(text)))


def merges_by_score(scores: Mapping[str, float]) -> list[tuple[str, str]] | None:
    """Ranked merges that join the same symbols as the scores do, or None where ranks cannot say it.

    A piece gets a merge for every way to cut it in two pieces, and pieces rank by their scores. With no two scores
    equal this joins exactly what SentencePiece joins: no merge crosses the borders of a symbol before it is made, so a
    symbol is always made as its text alone would be, by one and the same last merge; which of a piece's merges ranks
    first then makes no difference. Where two scores are equal SentencePiece takes the leftmost pair, a ranked merge
    the lower rank; and a character that is no piece can be part of a scored pair, but not of a merge.
    """
    long = [text for text in scores if len(text) > 1]
    if set("".join(long)) - scores.keys() or any(len(text) > _LONG for text in long):
        return None
    merges: list[tuple[str, str]] = []
    above: float | None = None
    for text in sorted(long, key=scores.__getitem__, reverse=True):
        known = len(merges)
        for cut in range(1, len(text)):
            left = text[:cut]
            if left in scores and (right := text[cut:]) in scores:
                merges.append((left, right))
        if len(merges) > known:
            if scores[text] == above:
                return None
            above = scores[text]
    return merges
