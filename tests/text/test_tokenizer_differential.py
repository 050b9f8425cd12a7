"""10,000 random texts for every real vocabulary: the ids of Hugging Face's files, as plain text and with markers."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_texts import random_texts
from text_samples import read_json, smollm_components

from minfer_models.tokenizer import Tokenizer
from minfer_models.tokenizer.pretokenizers import PRE_TOKENIZERS

COUNT = 10_000
CASES = [
    "\u1100\u1161 e\u0301",
    "a'Should,a'shall,a'They,a'REst,a'Very,a'Man,a'LLama,a'Down",
    "'ſ 'K",
    "<|im_start|><|im_end|>\n<think></think>",
    "<|eot_id|><|reserved_special_token_2|>00",
    "",
]
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


FOLDERS = {"qwen": "qwen3_tokenizer", "llama": "llama3_1_tokenizer", "mistral": "mistral_tokenizer"}


@pytest.fixture(scope="module")
def whole_files(request: pytest.FixtureRequest) -> dict[str, tokenizers.Tokenizer]:
    """The files as they are, with their added tokens."""
    folders = {name: request.getfixturevalue(folder) for name, folder in FOLDERS.items()}
    return {name: tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")) for name, folder in folders.items()}


@pytest.mark.parametrize("name", MARKERS)
def test_ids_are_those_of_tokenizer_json(
    request: pytest.FixtureRequest, whole_files: dict[str, tokenizers.Tokenizer], name: str
) -> None:
    folder: Path = request.getfixturevalue(FOLDERS[name])
    ours: Tokenizer = request.getfixturevalue(name)
    texts = [*CASES, *random_texts(COUNT, seed=len(name), markers=MARKERS[name])]
    assert_same_ids(ours, without_added_tokens(read_json(folder / "tokenizer.json")), texts, special=False)
    marked = [text for text in texts if any(mark in text for mark in MARKERS[name])]
    assert_same_ids(ours, whole_files[name], marked, special=True)
    assert len(marked) > COUNT // 10


@pytest.mark.parametrize(("name", "pre"), [("qwen", "qwen2"), ("llama", "llama-bpe")])
def test_pieces_are_those_of_tokenizer_json(whole_files: dict[str, tokenizers.Tokenizer], name: str, pre: str) -> None:
    """Also where no merge would show where the text was cut."""
    ours, theirs = PRE_TOKENIZERS[pre].build(), whole_files[name].pre_tokenizer
    for text in ["'ſa 'Sa", *random_texts(2000, seed=13)]:
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), repr(text)


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


@pytest.mark.parametrize("name", ["qwen", "llama", "smol", "mistral"])
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), special=st.booleans(), continues=st.booleans())
def test_a_stream_of_any_ids_joins_to_the_whole(
    request: pytest.FixtureRequest, name: str, data: st.DataObject, special: bool, continues: bool
) -> None:
    ours: Tokenizer = request.getfixturevalue(name)
    broken = [i for i in range(400) if ours.token_bytes(i) and not decodes(ours.token_bytes(i))]
    ids = data.draw(st.lists(st.integers(0, ours.n_vocab - 1) | st.sampled_from(broken), max_size=12))
    stream = ours.stream(special, continues)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.flush() == ours.decode(ids, special, continues)
    whole = b"".join(map(ours.token_bytes, ids))
    if decodes(whole):
        assert "\ufffd" in whole.decode() or "\ufffd" not in "".join(pieces)


def decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


LONG = {
    "a": "a",
    "space": " ",
    "digit": "7",
    "line end": "\n",
    "mixed": "Ab 12\n我🦙 ",
    "emoji": "🦙",
    "mark": "\u0301",
}


@pytest.mark.parametrize("name", ["qwen", "llama", "mistral"])
@pytest.mark.parametrize("unit", LONG.values(), ids=LONG)
def test_long_runs_have_the_ids_of_tokenizer_json(
    request: pytest.FixtureRequest, whole_files: dict[str, tokenizers.Tokenizer], name: str, unit: str
) -> None:
    ours: Tokenizer = request.getfixturevalue(name)
    text = "x" + (unit * 131072)[:131072] + "y"
    assert ours.encode(text) == whole_files[name].encode(text, add_special_tokens=False).ids


def what_comes_back(name: str, text: str) -> str:
    if name == "mistral":
        return text.replace("\u2581", " ")
    return unicodedata.normalize("NFC", text) if name == "qwen" else text
