"""Mistral's tekken: its expression in another engine, merges by a plain loop."""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import Any

import pytest
import regex
from hypothesis import example, given, settings
from random_texts import random_texts
from text_samples import TEXT

from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.bytelevel import BYTE_TO_CHAR
from minfer_models.tokenizer.pretokenizers import PRE_TOKENIZERS

# `config.pattern` of tekken.json, and the Split of Mistral-Nemo's tokenizer.json
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Plain:
    """Byte-level BPE with ignored merges, a pair at a time."""

    def __init__(self, meta: dict[str, Any]) -> None:
        self.ids = {text: i for i, text in enumerate(meta["tokenizer.ggml.tokens"])}
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(meta["tokenizer.ggml.merges"])}

    def encode(self, text: str) -> list[int]:
        return [i for piece in regex.findall(PATTERN, text) for i in self._piece(piece)]

    def _piece(self, piece: str) -> list[int]:
        whole = "".join(BYTE_TO_CHAR[byte] for byte in piece.encode())
        if whole in self.ids:
            return [self.ids[whole]]
        symbols = list(whole)
        while ranked := [(self.ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in self.ranks]:
            at = min(ranked)[1]
            symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
        return [self.ids[symbol] for symbol in symbols]


@pytest.fixture(scope="module")
def tekken(llama_meta: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata({**llama_meta, "tokenizer.ggml.pre": "tekken"})


@pytest.fixture(scope="module")
def plain(llama_meta: dict[str, Any]) -> Plain:
    return Plain(llama_meta)


def known(text: str) -> str:
    """Without what came late to Unicode or moved (U+0295), which the two engines class by other versions of it."""
    return "".join(c for c in text if unicodedata.category(c) != "Cn" and c != "\u0295")


def test_ids_are_those_of_the_published_expression(tekken: Tokenizer, plain: Plain) -> None:
    for text in map(known, random_texts(2000, seed=6)):
        assert tekken.encode(text) == plain.encode(text), repr(text)


def test_pieces_are_those_of_the_published_expression() -> None:
    cutter = PRE_TOKENIZERS["tekken"].build()
    for text in map(known, random_texts(3000, seed=10)):
        ours = [piece for piece, _ in cutter.pre_tokenize_str(text)]
        assert ours == [
            "".join(BYTE_TO_CHAR[byte] for byte in piece.encode()) for piece in regex.findall(PATTERN, text)
        ]


@settings(max_examples=100)
@given(text=TEXT)
@example("camelCaseHTTPServer's ALLCAPS'S ﬁǅungla a//b/\n\n/ 1234")
def test_ids_of_awkward_text(tekken: Tokenizer, plain: Plain, text: str) -> None:
    text = known(text)
    assert tekken.encode(text) == plain.encode(text)
    assert tekken.decode(tekken.encode(text)) == text


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("camelCase", ["camel", "Case"]),
        ("HTTPServer", ["HTTPServer"]),
        ("it's", ["it", "'s"]),
        ("12", ["1", "2"]),
        ("a/\n", ["a", "/\n"]),
    ],
)
def test_what_tekken_cuts(tekken: Tokenizer, llama: Tokenizer, text: str, pieces: list[str]) -> None:
    """Pieces that stand alone give the ids that they have together."""
    assert tekken.encode(text) == [i for piece in pieces for i in tekken.encode(piece)]
    assert regex.findall(PATTERN, text) == pieces


def test_tekken_begins_with_bos_and_takes_whole_words(tekken: Tokenizer) -> None:
    assert tekken.add_bos
    assert tekken.encode(" Việt") == [101798]
