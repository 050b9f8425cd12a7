"""10,000 random texts for every real vocabulary: the ids of Hugging Face's files, as plain text and with markers."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from random_texts import random_texts
from text_samples import read_json, smollm_components

from minfer_models.tokenizer import Tokenizer

COUNT = 10_000
MARKERS = {
    "qwen": ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|fim_pad|>", "<|endoftext|>"],
    "llama": ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|reserved_special_token_2|>"],
    "mistral": ["<s>", "</s>", "<unk>", "<0x0A>", "[INST]"],
}


def assert_same_ids(ours: Tokenizer, theirs: tokenizers.Tokenizer, texts: list[str], special: bool) -> None:
    expected = theirs.encode_batch_fast(texts, add_special_tokens=False)
    for text, encoding in zip(texts, expected, strict=True):
        assert ours.encode(text, special=special) == encoding.ids, repr(text)


def without_added_tokens(file: dict[str, Any]) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps({**file, "added_tokens": [], "post_processor": None}))


@pytest.mark.parametrize("name", MARKERS)
def test_ids_are_those_of_tokenizer_json(request: pytest.FixtureRequest, name: str) -> None:
    folder: Path = request.getfixturevalue({"qwen": "qwen3", "llama": "llama3_1"}.get(name, name) + "_tokenizer")
    ours: Tokenizer = request.getfixturevalue(name)
    texts = random_texts(COUNT, seed=len(name), markers=MARKERS[name])
    assert_same_ids(ours, without_added_tokens(read_json(folder / "tokenizer.json")), texts, special=False)
    whole = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert_same_ids(ours, whole, [text for text in texts if any(mark in text for mark in MARKERS[name])], special=True)


def test_ids_of_smollm2_are_those_of_its_components(smol: Tokenizer, smol_meta: dict[str, Any]) -> None:
    lacking = {*"\x04\x06\x13\x14\x16\x1d", *map(chr, range(0x40000, 0xC0000))}  # bytes that are no tokens of SmolLM2
    texts = ["".join(c for c in text if c not in lacking) for text in random_texts(COUNT, seed=5)]
    assert_same_ids(smol, smollm_components(smol_meta), texts, special=False)


@pytest.mark.parametrize("name", ["qwen", "llama", "smol", "mistral"])
def test_decoding_returns_the_text_at_once_and_in_a_stream(request: pytest.FixtureRequest, name: str) -> None:
    ours: Tokenizer = request.getfixturevalue(name)
    for text in random_texts(COUNT // 5, seed=11, markers=["<think>", "<s>", "<|eot_id|>"]):
        if name == "smol" and not text.isprintable():
            continue
        ids = ours.encode(text)
        stream = ours.stream()
        pieces = [stream.push(i) for i in ids]
        assert "".join(pieces) + stream.flush() == ours.decode(ids) == what_comes_back(name, text)
        assert not any("\ufffd" in piece for piece in pieces) or "\ufffd" in text


def what_comes_back(name: str, text: str) -> str:
    if name == "mistral":
        return text.replace("\u2581", " ")
    return unicodedata.normalize("NFC", text) if name == "qwen" else text
