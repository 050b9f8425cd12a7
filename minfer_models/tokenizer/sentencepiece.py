"""SentencePiece BPE (`tokenizer.ggml.model` = "llama") made from GGUF metadata, over the `tokenizers` library.

Kudo and Richardson 2018, `bpe_model.cc` and `normalizer.cc` of their library. A piece has a score; of all neighbours
that make a piece, the pair whose piece has the highest score is joined first, the leftmost of equals. What is no piece
in the end is written byte by byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

import tokenizers
from tokenizers.models import BPE

from minfer_models.tokenizer.bytelevel import HEX_TOKEN, NEVER_IN_UTF8
from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.pairs import Halves, merges_by_score
from minfer_models.tokenizer.scored import join_by_score
from minfer_models.tokenizer.stream import Opening
from minfer_models.tokenizer.utf8 import utf8
from minfer_models.tokenizer.vocab import (
    MODEL_KEY,
    SCORES_KEY,
    SPACE_MARK,
    TOKENS_KEY,
    TYPES_KEY,
    TokenType,
    Vocab,
    flag,
    numbers,
    token_id,
)
from minfer_models.tokenizer.whole import WholeTokens

PREFIX_KEY: Final = "tokenizer.ggml.add_space_prefix"
EXTRA_KEY: Final = "tokenizer.ggml.remove_extra_whitespaces"
CHARSMAP_KEY: Final = "tokenizer.ggml.precompiled_charsmap"


class SentencePieceBpe:
    """Plain text to ids and ids to bytes; `TextModel` of the tokenizer says what each part is for."""

    adds_bos = True
    adds_eos = False

    def __init__(
        self, vocab: Vocab, scores: list[float], unknown: int | None, prefix: bool = True, remove_extra: bool = False
    ) -> None:
        """`prefix`: a space goes before a text. `remove_extra`: of spaces, one stays between words and none outside."""
        self.vocab = vocab
        self.pre = None
        self.opening = Opening(self._opening_bytes_of, remove_extra) if prefix or remove_extra else None
        self._prefix, self._remove_extra, self._unknown = prefix, remove_extra, unknown
        self._pieces = _pieces(vocab)
        self._bytes = _byte_ids(vocab)
        if not self._bytes and unknown is None:
            raise TokenizerError(f"{TOKENS_KEY} has neither byte tokens nor an unknown token, so some text has no ids")
        self._scores = {text: scores[i] for text, i in self._pieces.items()}
        merges = merges_by_score(self._scores)
        self._bpe = None if merges is None else tokenizers.Tokenizer(self._model(merges))
        self._spacing = WholeTokens({text.replace(" ", SPACE_MARK): i for text, i in vocab.spacing().items()})

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object]) -> SentencePieceBpe:
        """Raises TokenizerError for broken arrays, and for a normalization that isn't run."""
        if meta.get(TYPES_KEY) is None:
            raise TokenizerError(f"{TYPES_KEY} is missing, so bytes and control tokens can't be told from text")
        if meta.get(CHARSMAP_KEY) is not None:
            raise TokenizerError(f"{CHARSMAP_KEY} is there, but {MODEL_KEY} 'llama' runs without a character map")
        vocab = Vocab.from_metadata(meta)
        scores = _scores(meta, len(vocab.tokens))
        vocab = vocab.with_special_ends(Halves(_pieces(vocab)))
        unknown = token_id(meta, "unknown", len(vocab.tokens))
        if unknown is None:
            unknown = next(iter(vocab.tokens_of(TokenType.UNKNOWN).values()), None)
        return cls(vocab, scores, unknown, flag(meta, PREFIX_KEY, True), flag(meta, EXTRA_KEY, False))

    def encode(self, text: str) -> list[int]:
        """The ids of plain text. Raises TokenizerError for a lone surrogate."""
        utf8(text)
        ids: list[int] = []
        for plain, whole in self._spacing.split(self._normalized(text)):
            if plain:
                ids.extend(self._by_merges(plain) if self._bpe is None else self._bpe.encode(plain).ids)
            if whole is not None:
                ids.append(whole)
        return ids

    def bytes_of(self, token_id: int) -> bytes:
        """The output bytes of an id in range; an unused one has none."""
        text, kind = self.vocab.tokens[token_id], self.vocab.types[token_id]
        if kind == TokenType.UNUSED:
            return b""
        if kind == TokenType.BYTE:
            return bytes([_byte_of(token_id, text)])
        return text.encode() if kind == TokenType.CONTROL else text.replace(SPACE_MARK, " ").encode()

    def _opening_bytes_of(self, token_id: int) -> bytes:
        data = self.bytes_of(token_id)
        return data[1:] if self.vocab.tokens[token_id].startswith(SPACE_MARK) else data

    def _normalized(self, text: str) -> str:
        if self._remove_extra:
            text = re.sub(" {2,}", " ", text.strip(" "))
        if self._prefix and text:
            text = " " + text
        text = text.replace(" ", SPACE_MARK)
        return text.rstrip(SPACE_MARK) if self._remove_extra else text

    def _model(self, merges: list[tuple[str, str]]) -> BPE:
        """Byte tokens go by the spelling that `tokenizers` looks for."""
        texts = {**self._pieces, **{f"<0x{byte:02X}>": i for byte, i in self._bytes.items()}}
        unknown = None if self._unknown is None else self.vocab.tokens[self._unknown]
        if unknown is not None and self._unknown is not None:
            texts[unknown] = self._unknown
        return BPE(vocab=texts, merges=merges, unk_token=unknown, byte_fallback=bool(self._bytes), fuse_unk=True)

    def _by_merges(self, text: str) -> list[int]:
        ids: list[int] = []
        for symbol in join_by_score(text, self._scores):
            ids.extend(self._ids_of(symbol, follows_unknown=ids[-1:] == [self._unknown]))
        return ids

    def _ids_of(self, symbol: str, follows_unknown: bool) -> Iterator[int]:
        if symbol in self._pieces:
            yield self._pieces[symbol]
        elif self._bytes:
            yield from (self._bytes[byte] for byte in symbol.encode())
        elif not follows_unknown and self._unknown is not None:
            yield self._unknown


def _pieces(vocab: Vocab) -> dict[str, int]:
    """What plain text may become."""
    return vocab.tokens_of(TokenType.NORMAL, TokenType.UNDEFINED)


def _byte_ids(vocab: Vocab) -> dict[int, int]:
    """Byte to id: of every byte that text can hold, or none."""
    ids = {_byte_of(i, text): i for text, i in vocab.tokens_of(TokenType.BYTE).items()}
    lacking = sorted(set(range(256)) - NEVER_IN_UTF8 - ids.keys())
    if ids and lacking:
        raise TokenizerError(f"{TOKENS_KEY} has {len(ids)} byte tokens, but none for byte 0x{lacking[0]:02X}")
    return ids


def _byte_of(token_id: int, text: str) -> int:
    match = HEX_TOKEN.fullmatch(text)
    if match is None:
        raise TokenizerError(f"{TOKENS_KEY}[{token_id}] is {text!r}, which is typed as a byte but not spelled <0xAB>")
    return int(match[1], 16)


def _scores(meta: Mapping[str, object], n_tokens: int) -> list[float]:
    scores = numbers(meta, SCORES_KEY, n_tokens)
    for i, score in enumerate(scores):
        if isinstance(score, bool) or not isinstance(score, int | float) or math.isnan(score):
            raise TokenizerError(f"{SCORES_KEY}[{i}] is {score!r}, not a number")
    return [float(score) for score in scores]
