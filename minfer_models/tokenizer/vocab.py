"""The vocabulary as GGUF metadata states it: token texts, their types, and the ids with a role."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from minfer_models.gguf.strings import StringArray
from minfer_models.tokenizer.errors import TokenizerError

MODEL_KEY: Final = "tokenizer.ggml.model"
TOKENS_KEY: Final = "tokenizer.ggml.tokens"
TYPES_KEY: Final = "tokenizer.ggml.token_type"
MERGES_KEY: Final = "tokenizer.ggml.merges"
SCORES_KEY: Final = "tokenizer.ggml.scores"

# SentencePiece writes a space as U+2581.
SPACE_MARK: Final = "\u2581"

# Texts that end a turn or a document in some model family. Files often name only one of theirs in the metadata.
END_NAMES: Final = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end_of_turn|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
        "</s>",
        "<eos>",
        "<EOT>",
        "_<EOT>",
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


MATCHED_WHOLE: Final = frozenset({TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED})


@dataclass(frozen=True, slots=True)
class Vocab:
    """Checked token texts with their types, one byte each: a `TokenType`. `ids` are the tokens' by text."""

    tokens: list[str]
    types: bytes
    ids: Mapping[str, int]

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object]) -> Vocab:
        """Raises TokenizerError for missing or contradictory arrays, or duplicate tokens."""
        tokens = strings(meta, TOKENS_KEY)
        ids = _unique_ids(tokens)
        return cls(tokens, bytes(_types(meta, len(tokens))), ids)

    def with_special_ends(self, made: Container[str]) -> Vocab:
        """Known ends of a turn or document that are typed as text, made special.

        Some converters type an end token as ordinary text; one that merges can make (`made`) really is ordinary.
        """
        normal = bytes([TokenType.NORMAL])
        types = bytearray(self.types)
        for i in (self.ids[name] for name in END_NAMES if name in self.ids):
            if types[i : i + 1] == normal and self.tokens[i] not in made:
                types[i] = TokenType.CONTROL
        return Vocab(self.tokens, bytes(types), self.ids)

    def tokens_of(self, *types: TokenType) -> dict[str, int]:
        """Text to id for the tokens of these types; empty texts are left out."""
        wanted = np.frombuffer(self.types.translate(_mask(types)), np.bool_)
        if 2 * np.count_nonzero(wanted) < len(wanted):
            return {text: i for i in np.flatnonzero(wanted).tolist() if (text := self.tokens[i])}
        found = dict(self.ids)  # nearly all, which one by one takes three times as long
        for text in ("", *(self.tokens[i] for i in np.flatnonzero(~wanted).tolist())):
            found.pop(text, None)
        return found

    def special(self) -> dict[str, int]:
        """Text to id of what only a trusted marker may become."""
        found = self.tokens_of(*MATCHED_WHOLE)
        for text in self.spacing():
            del found[text]
        return found

    def spacing(self) -> dict[str, int]:
        """Text to id of user-defined tokens that are nothing but white space: plain text becomes these too.

        They are runs of spaces or line ends that a vocabulary has as whole tokens, and can forge nothing.
        """
        tokens = self.tokens_of(TokenType.USER_DEFINED)
        return {text: i for text, i in tokens.items() if text.replace(SPACE_MARK, " ").isspace()}

    def end_ids(self) -> frozenset[int]:
        """Ids of special tokens whose text is a known end of turn or document."""
        return frozenset(i for text, i in self.special().items() if text in END_NAMES)

    def decodable(self) -> int:
        """One past the last id that stands for text: padded vocabularies end in unused ids."""
        return len(self.types.rstrip(bytes([TokenType.UNUSED])))

    def gaps(self) -> tuple[int, ...]:
        """Unused ids below `decodable`."""
        unused = bytes([TokenType.UNUSED])
        if unused not in self.types[: self.decodable()]:
            return ()
        return tuple(i for i in range(self.decodable()) if self.types[i] == TokenType.UNUSED)


def token_id(meta: Mapping[str, object], role: str, n_vocab: int) -> int | None:
    """`tokenizer.ggml.<role>_token_id`, or None when absent. Raises TokenizerError when it is no id."""
    key = f"tokenizer.ggml.{role}_token_id"
    value = meta.get(key)
    return None if value is None else _id(key, value, n_vocab)


def token_ids(meta: Mapping[str, object], role: str, n_vocab: int) -> list[int]:
    """`tokenizer.ggml.<role>_token_ids`, an array, or [] when absent. Raises TokenizerError when one is no id."""
    key = f"tokenizer.ggml.{role}_token_ids"
    value = meta.get(key, [])
    if isinstance(value, str) or not isinstance(value, np.ndarray | Sequence):
        raise TokenizerError(f"{key} is a {type(value).__name__}, not an array of ids")
    return [_id(f"{key}[{i}]", one, n_vocab) for i, one in enumerate(value)]


def _id(key: str, value: object, n_vocab: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < n_vocab:
        raise TokenizerError(f"{key} is {value!r}, which is no id of a vocabulary of {n_vocab} tokens")
    return int(value)


def flag(meta: Mapping[str, object], key: str, default: bool) -> bool:
    """A boolean of the metadata. Raises TokenizerError when it is something else."""
    value = meta.get(key, default)
    if not isinstance(value, bool | np.bool_):
        raise TokenizerError(f"{key} is {value!r}, not a boolean")
    return bool(value)


def strings(meta: Mapping[str, object], key: str) -> list[str]:
    """An array of strings as a list. Raises TokenizerError when it is missing or something else."""
    value = string_array(meta, key)
    return value.to_list() if isinstance(value, StringArray) else value


def string_array(meta: Mapping[str, object], key: str) -> StringArray | list[str]:
    """An array of strings, a file's as it is. Raises TokenizerError when it is missing or something else."""
    value = meta.get(key)
    if value is None:
        raise TokenizerError(f"{key} is missing")
    if isinstance(value, StringArray):
        return value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TokenizerError(f"{key} is a {type(value).__name__}, not an array of strings")
    texts = list(value)
    if set(map(type, texts)) <= {str}:
        return texts
    i, text = next((i, text) for i, text in enumerate(texts) if not isinstance(text, str))
    raise TokenizerError(f"{key}[{i}] is {text!r}, not a string")


def numbers(meta: Mapping[str, object], key: str, n_tokens: int) -> list[int | float]:
    """An array with a number for every token. Raises TokenizerError when it is missing or something else."""
    value = meta.get(key)
    if value is None:
        raise TokenizerError(f"{key} is missing")
    if not isinstance(value, np.ndarray | Sequence) or isinstance(value, str):
        raise TokenizerError(f"{key} is a {type(value).__name__}, not an array of numbers")
    if len(value) != n_tokens:
        raise TokenizerError(f"{key} has {len(value)} entries for {n_tokens} tokens")
    return value.tolist() if isinstance(value, np.ndarray) else list(value)


def _unique_ids(tokens: Sequence[str]) -> dict[str, int]:
    """Ids by text. Raises TokenizerError for no tokens, and for a text, unless it is empty, that stands there twice."""
    if not tokens:
        raise TokenizerError(f"{TOKENS_KEY} is empty")
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        first = dict[str, int]()
        for i, text in enumerate(tokens):
            if first.setdefault(text, i) != i and text:
                raise TokenizerError(f"{TOKENS_KEY}[{i}] repeats {text!r}, already id {first[text]}")
    return ids


def _mask(types: Container[int]) -> bytes:
    """For `bytes.translate`: 1 for these types."""
    return bytes(kind in types for kind in range(256))


def _types(meta: Mapping[str, object], n_tokens: int) -> list[int]:
    if meta.get(TYPES_KEY) is None:
        return [int(TokenType.NORMAL)] * n_tokens
    types = numbers(meta, TYPES_KEY, n_tokens)
    known = set(TokenType)
    for i, kind in enumerate(types if set(types) - known else ()):
        if kind not in known:
            raise TokenizerError(f"{TYPES_KEY}[{i}] is {kind!r}; known types are 0 to {max(known)}")
    if set(map(type, types)) == {int}:  # nearly always: making ints of ints took a fortieth of the whole
        return types  # pyright: ignore[reportReturnType]
    return [int(kind) for kind in types]
