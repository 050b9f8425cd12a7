"""SentencePiece's own way of joining symbols, for scores that ranked merges cannot express."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping


def join_by_score(text: str, scores: Mapping[str, float]) -> Iterator[str]:
    """The symbols of `text`: neighbours join while they make a piece, the highest score first, then the leftmost.

    scores: by piece. A symbol that never joined is a character, which may be no piece. Takes n log n steps, each
    slower than those of ranked merges.
    """
    # A symbol goes by its start; `end` and `before` are those of the symbol that starts there.
    end = list(range(1, len(text) + 1))
    before = list(range(-1, len(text)))
    candidates: list[tuple[float, int, int]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right < len(text):
            score = scores.get(text[left : end[right]])
            if score is not None:
                heapq.heappush(candidates, (-score, left, end[right]))

    for start in range(len(text) - 1):
        consider(start, start + 1)
    while candidates:
        _, left, stop = heapq.heappop(candidates)
        right = end[left]
        if right <= left or right >= len(text) or end[right] != stop:
            continue  # one of the two has joined another meanwhile
        end[left], end[right] = stop, 0
        if stop < len(text):
            before[stop] = left
        consider(before[left], left)
        consider(left, stop)
    start = 0
    while start < len(text):
        yield text[start : end[start]]
        start = end[start]
