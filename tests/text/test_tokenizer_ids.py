"""Ids of real vocabularies, against published ids and against the `tokenizers` files themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from text_samples import TEXT, gguf_metadata, smollm_components

from minfer_models.tokenizer import Tokenizer, TokenizerError
from minfer_models.tokenizer.pretokenizers import PRE_TOKENIZERS

QWEN_IDS: dict[str, list[int]] = {
    "": [],
    " ": [220],
    "  ": [256],
    "   ": [262],
    "\t": [197],
    "\n": [198],
    "\n\n": [271],
    "\n\n\n": [1406],
    "\t\n": [1572],
    "Hello world": [9707, 1879],
    " Hello world": [21927, 1879],
    "Hello World": [9707, 4337],
    " Hello World!": [21927, 4337, 0],
    "Hello, world!": [9707, 11, 1879, 0],
    "  Hello": [220, 21927],
    "   Hello": [256, 21927],
    "    Hello": [262, 21927],
    "    Hello\n    Hello": [262, 21927, 198, 262, 21927],
    " (": [320],
    "\n =": [198, 284],
    "' era": [6, 11385],
    " this is 🦙.cpp": [419, 374, 11162, 99, 247, 13, 10821],
    "w048 7tuijk dsdfhu": [86, 15, 19, 23, 220, 22, 83, 1963, 41808, 11472, 2940, 16739],
    "нещо на Български": [78762, 14144, 1456, 13073, 63471, 33594, 3038, 133178, 79012],
    "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～": [
        9707, 11, 379, 64848, 0, 2585, 525, 498, 26525, 223, 937, 104100, 18493, 22377, 99257,
        16, 18, 16, 19, 16, 20, 16, 35727, 21216,
    ],
    "ied 4 ½ months": [1122, 220, 19, 220, 26062, 3951],
}  # fmt: skip

LLAMA_IDS: dict[str, list[int]] = {
    "Hello world": [9906, 1917],
    " Hello world": [22691, 1917],
    "3": [18],
    "33": [1644],
    "333": [8765],
    "3333": [8765, 18],
    "33333": [8765, 1644],
    "333333": [8765, 8765],
    "\n\n\n": [1432],
    "\t\n": [1602],
    "\n =": [198, 284],
    "' era": [6, 11639],
    " this is 🦙.cpp": [420, 374, 11410, 99, 247, 13, 11055],
    " Việt": [101798],
}


@pytest.mark.parametrize(("text", "ids"), QWEN_IDS.items())
def test_qwen2_ids(qwen: Tokenizer, text: str, ids: list[int]) -> None:
    assert qwen.encode(text) == ids
    assert qwen.decode(ids) == text


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 100])
def test_qwen2_has_one_token_per_digit(qwen: Tokenizer, count: int) -> None:
    assert qwen.encode("3" * count) == [18] * count


@pytest.mark.parametrize(("text", "ids"), LLAMA_IDS.items())
def test_llama_bpe_ids(llama: Tokenizer, text: str, ids: list[int]) -> None:
    assert llama.encode(text) == ids
    assert llama.decode(ids) == text


def test_only_llama_bpe_ignores_merges(llama_meta: dict[str, Any]) -> None:
    merged = Tokenizer.from_metadata({**llama_meta, "tokenizer.ggml.pre": "qwen2"})
    assert merged.encode(" Việt") == [11655, 26298, 83]


@pytest.mark.parametrize("text", [" 12 ", "a1b", "  7", "x  42\n", "99 9"])
def test_smollm_cuts_out_every_digit(smol: Tokenizer, text: str) -> None:
    pieces = [smol.decode([i]) for i in smol.encode(text)]
    assert "".join(pieces) == text
    assert all(len(piece) == 1 for piece in pieces if any(char.isdigit() for char in piece))


@pytest.mark.parametrize(("pre", "pieces"), [("gpt-2", [b" 1", b"2"]), ("smollm", [b" ", b"1", b"2"])])
def test_only_gpt2_gives_a_digit_the_space_before_it(toy_meta: dict[str, Any], pre: str, pieces: list[bytes]) -> None:
    tokens, types = [*toy_meta["tokenizer.ggml.tokens"], "Ġ1"], [*toy_meta["tokenizer.ggml.token_type"], 1]
    toy_meta |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    toy = Tokenizer.from_metadata({**toy_meta, "tokenizer.ggml.merges": ["Ġ 1"], "tokenizer.ggml.pre": pre})
    assert [toy.token_bytes(i) for i in toy.encode(" 12")] == pieces


@pytest.mark.parametrize(
    ("alias", "name"), [("deepseek-r1-qwen", "qwen2"), ("llama3", "llama-bpe"), ("llama-v3", "llama-bpe")]
)
def test_names_for_the_same_pre_tokenizer(toy_meta: dict[str, Any], alias: str, name: str) -> None:
    toy = Tokenizer.from_metadata({**toy_meta, "tokenizer.ggml.pre": alias})
    assert toy.pre == alias
    assert PRE_TOKENIZERS[alias] is PRE_TOKENIZERS[name]


@pytest.fixture(scope="module", params=["smollm", "gpt-2"])
def smol_pair(request: pytest.FixtureRequest, smol_meta: dict[str, Any]) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    ours = Tokenizer.from_metadata({**smol_meta, "tokenizer.ggml.pre": request.param})
    return ours, smollm_components(smol_meta, digits=request.param == "smollm")


@settings(max_examples=150, deadline=None)
@given(text=TEXT)
@example("  7a 12")
@example("\r\n\n x\t\ty")
def test_gpt2_style_ids_are_those_of_its_components(
    smol_pair: tuple[Tokenizer, tokenizers.Tokenizer], text: str
) -> None:
    ours, oracle = smol_pair
    text = "".join(c for c in text if not 0x40000 <= ord(c) < 0xC0000 and c not in "\x04\x06\x13\x14\x16\x1d")
    assert ours.encode(text) == oracle.encode(text).ids
    assert ours.decode(ours.encode(text)) == text


def test_our_reader_gives_the_same_tokenizer_as_gguf_py(smollm2: Path, smol: Tokenizer) -> None:
    theirs = Tokenizer.from_metadata(gguf_metadata(smollm2))
    text = "<|im_start|>user\nnaïve 12\u00a0🦙<|im_end|>"
    assert smol.encode(text, special=True) == theirs.encode(text, special=True)
    assert (smol.n_vocab, smol.bos, smol.eos, smol.eog) == (theirs.n_vocab, theirs.bos, theirs.eos, theirs.eog)


@pytest.mark.parametrize(
    ("pre", "back"), [("qwen2", "\u00e9"), ("deepseek-r1-qwen", "\u00e9"), ("llama-bpe", "e\u0301")]
)
def test_text_is_composed_where_the_makers_do_it(qwen_meta: dict[str, Any], pre: str, back: str) -> None:
    tokenizer = Tokenizer.from_metadata({**qwen_meta, "tokenizer.ggml.pre": pre})
    assert tokenizer.decode(tokenizer.encode("e\u0301")) == back
    assert tokenizer.encode_segments([("e", True), ("\u0301", False)]) == tokenizer.encode("e\u0301")


def test_a_mark_is_not_composed_with_a_special_token(qwen: Tokenizer) -> None:
    ids = qwen.encode_segments([("<|im_start|>", True), ("\u0338x", False)])
    assert ids == [151644, *qwen.encode("\u0338x")]


def test_a_lone_surrogate_beside_a_mark_is_named(qwen: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"U\+D800, at character 2"):
        qwen.encode("e\u0301\ud800")
