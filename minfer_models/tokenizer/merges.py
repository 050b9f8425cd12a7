"""The merges of a byte-level BPE vocabulary, in rank order."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from minfer_models.gguf.strings import StringArray
from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.vocab import MATCHED_WHOLE, MERGES_KEY, TokenType, Vocab, string_array

# Up to here a token is cut at every place to look its merge up; the cost grows with the square of its length.
_LONG: Final = 256
_NUL, _SPACE = 0, ord(" ")


class Merges:
    """The merges as a file states them, two tokens around a space each; `in` asks for the texts that they make."""

    def __init__(self, stated: StringArray | list[str], ids: Container[str]) -> None:
        """ids: every token, of which merges join two."""
        self._given, self._ids = stated, ids

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object], vocab: Vocab) -> Merges:
        """Raises TokenizerError for other values."""
        return cls(string_array(meta, MERGES_KEY), vocab.ids)

    def __contains__(self, text: str) -> bool:
        if len(text) > _LONG:
            return any(len(merge) == len(text) + 1 and merge.replace(" ", "", 1) == text for merge in self._stated)
        halves = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        return any(f"{a} {b}" in self._set for a, b in halves if a in self._ids and b in self._ids)

    @cached_property
    def _stated(self) -> list[str]:
        return list(self._given)

    @cached_property
    def _set(self) -> frozenset[str]:
        return frozenset(self._stated)  # seldom needed: most special tokens aren't even two tokens in a row

    @cached_property
    def _joined(self) -> str:
        return self._given.joined() if isinstance(self._given, StringArray) else "\0".join(self._given)

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self._joined.encode("utf-8", "surrogatepass"), np.uint8)

    @property
    def longest(self) -> int:
        """The most UTF-8 bytes of a text that one of them makes."""
        ends = np.flatnonzero(self._bytes == _NUL)
        return int(np.diff(ends, prepend=-1, append=len(self._bytes)).max()) - len("\0 ")

    def pairs(self) -> list[tuple[str, str]]:
        """Every merge as its two tokens. Raises TokenizerError for one that isn't two tokens around one space.

        All are cut at once: one by one, a vocabulary of 150,000 took 0.1 s.
        """
        joined, data = self._joined, self._bytes
        gaps = data[(data == _SPACE) | (data == _NUL)]
        one_space_each = (
            len(gaps) == 2 * len(self._given) - 1 and (gaps[::2] == _SPACE).all() and (gaps[1::2] == _NUL).all()
        )
        cut = joined.replace("\0", " ").split(" ")
        if one_space_each and all(cut):
            return list(zip(cut[::2], cut[1::2], strict=True))
        return [_pair(rank, merge) for rank, merge in enumerate(self._stated)]


def ordinary_pairs(merges: Merges, vocab: Vocab) -> list[tuple[str, str]]:
    """The merges as pairs, less those of or to a token that plain text may not become. Raises as `Merges.pairs`."""
    pairs = merges.pairs()
    barred = {text for text in vocab.tokens_of(*MATCHED_WHOLE, TokenType.UNUSED) if text in merges}
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


def _pair(rank: int, merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right) or " " in right:
        raise TokenizerError(f"{MERGES_KEY}[{rank}] is {merge!r}, not two tokens around one space")
    return left, right
