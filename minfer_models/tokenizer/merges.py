"""The merges of a byte-level BPE vocabulary, in rank order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Final

from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.vocab import MATCHED_WHOLE, MERGES_KEY, TokenType, Vocab, strings

# Up to here a token is cut at every place to look its merge up; the cost grows with the square of its length.
_LONG: Final = 256


class Made:
    """The texts that merges make, asked one by one: joining every pair would take longer."""

    def __init__(self, merges: list[str]) -> None:
        self._merges = frozenset(merges)

    def __contains__(self, text: str) -> bool:
        if len(text) > _LONG:
            return any(len(merge) == len(text) + 1 and merge.replace(" ", "", 1) == text for merge in self._merges)
        return any(f"{text[:cut]} {text[cut:]}" in self._merges for cut in range(1, len(text)))


def merges_from_metadata(meta: Mapping[str, object]) -> list[str]:
    """The merges as the file states them, two tokens around a space each. Raises TokenizerError for other values."""
    return strings(meta, MERGES_KEY)


def ordinary_pairs(stated: list[str], vocab: Vocab, made: Made) -> list[tuple[str, str]]:
    """The merges as pairs, less those of or to a token that plain text may not become.

    Raises TokenizerError for a merge that isn't two tokens around one space.
    """
    pairs = _pairs(stated)
    barred = {text for text in vocab.tokens_of(*MATCHED_WHOLE, TokenType.UNUSED) if text in made}
    if not barred:
        return pairs
    return [(a, b) for a, b in pairs if a not in barred and b not in barred and a + b not in barred]


def check_merges(merges: list[tuple[str, str]], tokens: list[str]) -> None:
    """Raise TokenizerError for the first merge of or to something that is no token.

    Costs more than making a tokenizer, which refuses such merges too, without saying which: so ask afterwards.
    """
    known = set(tokens)
    for rank, (left, right) in enumerate(merges):
        for lacking in (text for text in (left, right, left + right) if text not in known):
            raise TokenizerError(f"{MERGES_KEY}[{rank}] is {left + ' ' + right!r}, but {lacking!r} is no token")


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    """Every merge as its two tokens. All are cut at once: one by one, a vocabulary of 150,000 took 0.1 s."""
    joined = "\n".join(merges)
    cut = joined.replace("\n", " ").split(" ")
    one_space_each = set(map(str.count, merges, repeat(" "))) == {1} and joined.count("\n") == len(merges) - 1
    if one_space_each and all(cut):
        return list(zip(cut[::2], cut[1::2], strict=True))
    return [_pair(rank, merge) for rank, merge in enumerate(merges)]


def _pair(rank: int, merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right) or " " in right:
        raise TokenizerError(f"{MERGES_KEY}[{rank}] is {merge!r}, not two tokens around one space")
    return left, right
