"""Sets of characters as sorted, disjoint ranges of code points."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last code point of each range."""

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
EVERY: Ranges = ((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST))


def char_set(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges joined and in order, without the surrogates, which no UTF-8 text has."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return both(tuple(joined), EVERY)


def others(ranges: Ranges) -> Ranges:
    """Every character that is in none of the ranges."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return both(tuple(gaps), EVERY)


def both(left: Ranges, right: Ranges) -> Ranges:
    """What is in left and in right."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def first_bytes(ranges: Ranges) -> int:
    """The first bytes of the characters in UTF-8, as bits of a number; the order of bytes is that of code points."""
    bits = 0
    for low, high in ranges:
        first, last = chr(low).encode()[0], chr(high).encode()[0]
        bits |= (1 << (last + 1)) - (1 << first)
    return bits
