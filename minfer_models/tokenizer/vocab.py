"""The vocabulary as GGUF metadata states it: token texts, their types, and the ids with a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat
from typing import Final

import numpy as np

from minfer_models.tokenizer.bytelevel import hex_token_to_bytes, token_to_bytes
from minfer_models.tokenizer.errors import TokenizerError

MODEL_KEY: Final = "tokenizer.ggml.model"
TOKENS_KEY: Final = "tokenizer.ggml.tokens"
TYPES_KEY: Final = "tokenizer.ggml.token_type"
MERGES_KEY: Final = "tokenizer.ggml.merges"

# Texts that end a turn or a document in some model family. Files often name only one of theirs in the metadata.
END_NAMES: Final = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<|return|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
        "</s>",
        "<eos>",
        "<EOT>",
        "[EOT]",
        "[EOS]",
    }
)


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type` of the GGUF specification."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Nearly every token, told by a plain int: between two steps of a model everything runs with cold caches.
_NORMAL = int(TokenType.NORMAL)
_MATCHED_WHOLE = frozenset({TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED})


@dataclass(frozen=True, slots=True)
class Vocab:
    """Checked token texts with their types; `merges` are pairs in rank order, none of which makes a special token.

    `types` has one byte a token: its `TokenType`.
    """

    tokens: list[str]
    types: bytes
    merges: list[tuple[str, str]]

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object]) -> Vocab:
        """Raises TokenizerError for another tokenizer model, missing or contradictory arrays, or duplicate tokens."""
        model = meta.get(MODEL_KEY)
        if model != "gpt2":
            raise TokenizerError(f"{MODEL_KEY} is {model!r}; only 'gpt2' (byte-level BPE) can be run")
        tokens = _strings(meta, TOKENS_KEY)
        stated = _strings(meta, MERGES_KEY)
        merges = _pairs(stated)
        ids = _unique_ids(tokens)
        made = _Made(frozenset(stated))
        types = bytearray(_types(meta, len(tokens)))
        for name in END_NAMES & ids.keys():
            # Some converters type an end token as ordinary text; one that merges can make really is ordinary.
            if types[ids[name]] == TokenType.NORMAL and name not in made:
                types[ids[name]] = TokenType.CONTROL
        vocab = cls(tokens, bytes(types), merges)
        return vocab._without_special_merges(made)

    def check_merges(self) -> None:
        """Raise TokenizerError for the first merge of or to something that is no token.

        Costs more than making a tokenizer, which refuses such merges too, without saying which: so ask afterwards.
        """
        known = set(self.tokens)
        for rank, (left, right) in enumerate(self.merges):
            for lacking in (text for text in (left, right, left + right) if text not in known):
                raise TokenizerError(f"{MERGES_KEY}[{rank}] is {left + ' ' + right!r}, but {lacking!r} is no token")

    def _without_special_merges(self, made: _Made) -> Vocab:
        barred = {text for text in self.tokens_of(*_MATCHED_WHOLE, TokenType.UNUSED) if text in made}
        if not barred:
            return self
        kept = [(a, b) for a, b in self.merges if a not in barred and b not in barred and a + b not in barred]
        return Vocab(self.tokens, self.types, kept)

    def tokens_of(self, *types: TokenType) -> dict[str, int]:
        """Text to id for the tokens of these types; empty texts are left out."""
        found = np.flatnonzero(np.isin(np.frombuffer(self.types, np.uint8), types)).tolist()
        return {text: i for i in found if (text := self.tokens[i])}

    def ordinary(self) -> dict[str, int]:
        """Text to id of what plain text may become."""
        return self.tokens_of(TokenType.NORMAL, TokenType.UNDEFINED, TokenType.BYTE)

    def special(self) -> dict[str, int]:
        """Text to id of what only a trusted marker may become."""
        return self.tokens_of(*_MATCHED_WHOLE)

    def bytes_of(self, token_id: int) -> bytes:
        """The output bytes of an id in range; an unused one has none."""
        text, kind = self.tokens[token_id], self.types[token_id]
        if kind == _NORMAL:
            return token_to_bytes(text)
        if kind == TokenType.UNUSED:
            return b""
        if kind in _MATCHED_WHOLE:
            return text.encode()
        return hex_token_to_bytes(text) if kind == TokenType.BYTE else token_to_bytes(text)

    def end_ids(self) -> frozenset[int]:
        """Ids of special tokens whose text is a known end of turn or document."""
        return frozenset(i for text, i in self.special().items() if text in END_NAMES)


@dataclass(frozen=True, slots=True)
class _Made:
    """The texts that merges make, asked one by one: joining every pair would take longer."""

    merges: frozenset[str]

    def __contains__(self, text: str) -> bool:
        return any(f"{text[:cut]} {text[cut:]}" in self.merges for cut in range(1, len(text)))


def token_id(meta: Mapping[str, object], role: str, n_vocab: int) -> int | None:
    """`tokenizer.ggml.<role>_token_id`, or None when absent. Raises TokenizerError when it is no id."""
    key = f"tokenizer.ggml.{role}_token_id"
    value = meta.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < n_vocab:
        raise TokenizerError(f"{key} is {value!r}, which is no id of a vocabulary of {n_vocab} tokens")
    return int(value)


def flag(meta: Mapping[str, object], key: str, default: bool) -> bool:
    """A boolean of the metadata. Raises TokenizerError when it is something else."""
    value = meta.get(key, default)
    if not isinstance(value, bool | np.bool_):
        raise TokenizerError(f"{key} is {value!r}, not a boolean")
    return bool(value)


def _strings(meta: Mapping[str, object], key: str) -> list[str]:
    value = meta.get(key)
    if value is None:
        raise TokenizerError(f"{key} is missing")
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TokenizerError(f"{key} is a {type(value).__name__}, not an array of strings")
    texts = list(value)
    if set(map(type, texts)) <= {str}:
        return texts
    i, text = next((i, text) for i, text in enumerate(texts) if not isinstance(text, str))
    raise TokenizerError(f"{key}[{i}] is {text!r}, not a string")


def _unique_ids(tokens: Sequence[str]) -> dict[str, int]:
    if not tokens:
        raise TokenizerError(f"{TOKENS_KEY} is empty")
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) == len(tokens):
        return ids
    ids.clear()
    for i, text in enumerate(tokens):
        first = ids.setdefault(text, i)
        if first != i and text:
            raise TokenizerError(f"{TOKENS_KEY}[{i}] repeats {text!r}, already id {first}")
    return ids


def _types(meta: Mapping[str, object], n_tokens: int) -> list[int]:
    value = meta.get(TYPES_KEY)
    if value is None:
        return [int(TokenType.NORMAL)] * n_tokens
    if not isinstance(value, np.ndarray | Sequence) or isinstance(value, str):
        raise TokenizerError(f"{TYPES_KEY} is a {type(value).__name__}, not an array of integers")
    if len(value) != n_tokens:
        raise TokenizerError(f"{TYPES_KEY} has {len(value)} entries for {n_tokens} tokens")
    types = value.tolist() if isinstance(value, np.ndarray) else list(value)
    known = set(TokenType)
    for i, kind in enumerate(types if set(types) - known else ()):
        if kind not in known:
            raise TokenizerError(f"{TYPES_KEY}[{i}] is {kind!r}; known types are 0 to {max(known)}")
    return types


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
