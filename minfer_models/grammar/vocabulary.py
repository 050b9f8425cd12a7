"""A vocabulary as the grammar engine sees it: the bytes of each token, and which ids end a text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.constraint import Mask, mask_words
from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.vocab import TokenType

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# No UTF-8 text holds it, and the engine marks its own special tokens with it.
_MARK = b"\xff"


class Vocabulary:
    """The tokens of `tokenizer`, for logits that are `n_logits` wide; made once per model.

    Control tokens, the unknown token and those that end a generation stand for no text: a grammar gets them only by
    naming them.
    """

    def __init__(self, tokenizer: Tokenizer, n_logits: int) -> None:
        self.tokenizer = tokenizer
        self.n_words = mask_words(n_logits)
        self.eog = frozenset(i for i in tokenizer.eog if i < tokenizer.decodable)
        self.n_tokens = min(tokenizer.decodable, n_logits)
        no_text = (TokenType.CONTROL, TokenType.UNKNOWN)
        self.special = self.eog | {i for i in range(self.n_tokens) if tokenizer.token_type(i) in no_text}
        self.tokens: list[bytes] = [self._bytes(i) for i in range(self.n_tokens)]
        self.engine = _engine_tokenizer(self.tokens, self.eog, self.special)

    def _bytes(self, token_id: int) -> bytes:
        data = self.tokenizer.token_bytes(token_id)
        return b"" if _MARK in data and token_id not in self.special else data

    @cached_property
    def only_eog(self) -> Mask:
        """The ids that end a generation, and no other."""
        return self.mask(self.eog)

    def mask(self, ids: Any) -> Mask:
        """The mask of these ids, not to be written to."""
        return bits_of(np.fromiter(ids, np.int64), self.n_words)


def bits_of(ids: NDArray[np.int64], n_words: int) -> Mask:
    """uint32 [n_words] with the bits of `ids` set, read-only."""
    flags = np.zeros(n_words * 32, np.uint8)
    flags[ids] = 1
    mask = np.packbits(flags, bitorder="little").view(np.uint32)
    mask.flags.writeable = False
    return mask


class _Tokens:
    """What the engine's tokenizer is made from."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], eog: frozenset[int], special: frozenset[int]) -> None:
        self.tokens = tokens
        self.eos_token_id = min(eog)
        self.special_token_ids = sorted(special)

    def __call__(self, _text: bytes | str) -> list[int]:
        """Asked only to force a text's usual tokens, which no grammar of ours does."""
        return []


def _engine_tokenizer(tokens: Sequence[bytes], eog: frozenset[int], special: frozenset[int]) -> LLTokenizer:
    from llguidance import LLTokenizer

    return LLTokenizer(_Tokens(tokens, eog, special), eos_token=sorted(eog))  # pyright: ignore[reportArgumentType]
