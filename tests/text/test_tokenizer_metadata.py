"""Metadata that makes no tokenizer: one error with the key, the value and what would do."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from minfer_models.synthetic import byte_vocabulary
from minfer_models.tokenizer import Tokenizer, TokenizerError, metadata_from_hf
from minfer_models.tokenizer.bytelevel import BYTE_TO_CHAR, CHAR_TO_BYTE


@pytest.mark.parametrize("pre", [None, "default", "foo", "", 3])
def test_an_unknown_pre_tokenizer_is_refused(toy_meta: dict[str, Any], pre: object) -> None:
    toy_meta["tokenizer.ggml.pre"] = pre
    if pre is None:
        del toy_meta["tokenizer.ggml.pre"]
    expected = (
        r"tokenizer\.ggml\.pre is " + ("missing" if pre is None else repr(pre)) + ".*qwen2.*llama-bpe.*smollm.*gpt-2"
    )
    with pytest.raises(TokenizerError, match=expected):
        Tokenizer.from_metadata(toy_meta)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("bert", "'bert' (WordPiece)"),
        ("t5", "'t5' (SentencePiece Unigram)"),
        ("unigram", "'unigram' (SentencePiece Unigram)"),
        ("rwkv", "'rwkv' (RWKV World)"),
        ("none", "'none' (no vocabulary)"),
        ("new", "'new'"),
        (None, "None"),
        (["llama"], "['llama']"),
    ],
)
def test_another_tokenizer_model_is_refused(toy_meta: dict[str, Any], model: object, named: str) -> None:
    what = f"tokenizer.ggml.model is {named}; what can be run is 'gpt2' (byte-level BPE) and 'llama'"
    with pytest.raises(TokenizerError, match=re.escape(what)):
        Tokenizer.from_metadata({**toy_meta, "tokenizer.ggml.model": model})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokens", None, "tokens is missing"),
        ("tokens", "abc", "tokens is a str"),
        ("tokens", [], "tokens is empty"),
        ("tokens", ["a", 7], r"tokens\[1\] is 7"),
        ("tokens", ["a", "b", "a"], r"tokens\[2\] repeats 'a', already id 0"),
        ("merges", None, "merges is missing"),
        ("merges", ["a b", "ab"], r"merges\[1\] is 'ab'"),
        ("merges", ["a b c"], r"merges\[0\] is 'a b c'"),
        ("merges", ["a b c", "ab"], r"merges\[0\] is 'a b c'"),
        ("merges", ["ab", "a b c"], r"merges\[0\] is 'ab'"),
        ("merges", ["a\0b", "ab c"], r"merges\[0\] is 'a\\x00b'"),
        ("merges", [" b"], r"merges\[0\] is ' b'"),
        ("merges", ["a b", "c ab"], r"merges\[1\] is 'c ab', but 'cab' is no token"),
        ("merges", ["zz b"], r"'zz' is no token"),
        ("token_type", [1, 1], "token_type has 2 entries for 265 tokens"),
        ("token_type", 1, "token_type is a int"),
        ("token_type", [1] * 264 + [7], r"token_type\[264\] is 7"),
        ("bos_token_id", 265, "bos_token_id is 265.*265 tokens"),
        ("eos_token_id", -1, "eos_token_id is -1"),
        ("eot_token_id", "x", "eot_token_id is 'x'"),
        ("eom_token_id", True, "eom_token_id is True"),
        ("eos_token_ids", [1, 265], r"eos_token_ids\[1\] is 265.*265 tokens"),
        ("eos_token_ids", [True], r"eos_token_ids\[0\] is True"),
        ("eot_token_ids", "x", "eot_token_ids is a str, not an array of ids"),
        ("add_bos_token", 1, "add_bos_token is 1"),
    ],
)
def test_broken_metadata_is_refused(toy_meta: dict[str, Any], key: str, value: object, message: str) -> None:
    toy_meta[f"tokenizer.ggml.{key}"] = value
    if value is None:
        del toy_meta[f"tokenizer.ggml.{key}"]
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_metadata(toy_meta)


def test_a_merge_that_makes_more_than_any_token_is_refused_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """The library panics at it, with a trace on stderr."""
    meta = byte_vocabulary()
    for name in ("tokens", "token_type"):
        meta[f"tokenizer.ggml.{name}"] = list(meta[f"tokenizer.ggml.{name}"])[:257]
    with pytest.raises(TokenizerError, match=r"merges\[0\] is 'Ā Ā', but 'ĀĀ' is no token"):
        Tokenizer.from_metadata(meta)
    assert capfd.readouterr().err == ""


def test_without_types_all_tokens_are_text_but_for_known_ends(toy_meta: dict[str, Any]) -> None:
    del toy_meta["tokenizer.ggml.token_type"]
    toy = Tokenizer.from_metadata(toy_meta)
    assert toy.encode("<s></s>", special=True)[-1:] == [259]
    assert 258 not in toy.encode("<s>", special=True)


def test_merges_cannot_make_a_long_special_token(toy_meta: dict[str, Any]) -> None:
    long = "ab" * 200
    parts = {
        "tokens": [long[:100], long[100:], long],
        "token_type": [1, 1, 3],
        "merges": [f"{long[:100]} {long[100:]}"],
    }
    changed = {f"tokenizer.ggml.{key}": [*toy_meta[f"tokenizer.ggml.{key}"], *more] for key, more in parts.items()}
    toy = Tokenizer.from_metadata({**toy_meta, **changed})
    assert toy.special_id(long) == 267
    assert 267 not in toy.encode(long)


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64])
def test_arrays_may_be_numpy(toy_meta: dict[str, Any], kind: type) -> None:
    types = np.array(toy_meta["tokenizer.ggml.token_type"], dtype=kind)
    numpy_ids = {"tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": np.uint32(258)}
    ours, expected = Tokenizer.from_metadata({**toy_meta, **numpy_ids}), Tokenizer.from_metadata(toy_meta)
    assert ours.encode("<s>abc<t>", special=True) == expected.encode("<s>abc<t>", special=True)
    assert type(ours.bos) is int


def test_several_empty_tokens_are_no_duplicates(toy_meta: dict[str, Any]) -> None:
    tokens, types = [*toy_meta["tokenizer.ggml.tokens"], "", ""], [*toy_meta["tokenizer.ggml.token_type"], 1, 3]
    toy = Tokenizer.from_metadata({**toy_meta, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types})
    assert toy.encode("abc", special=True) == [257]
    assert toy.decode([265, 266]) == ""


def test_the_byte_alphabet_is_that_of_transformers() -> None:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    assert bytes_to_unicode() == BYTE_TO_CHAR
    assert {char: byte for byte, char in BYTE_TO_CHAR.items()} == CHAR_TO_BYTE


def hf_files(**config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    letters = {char: i for i, char in enumerate(BYTE_TO_CHAR.values())}
    added = [
        {"id": 257, "content": "<s>", "special": True},
        {"id": 258, "content": "<think>", "special": False},
        {"id": 260, "content": "</s>", "special": True},
    ]
    model = {"type": "BPE", "vocab": {**letters, "ab": 256}, "merges": [["a", "b"]]}
    return {"model": model, "added_tokens": added}, {"bos_token": {"content": "<s>"}, "eos_token": "</s>", **config}


def test_hugging_face_files_become_metadata() -> None:
    meta = metadata_from_hf(*hf_files(chat_template="{{ 1 }}", pad_token=None), "gpt-2", n_vocab=264)
    toy = Tokenizer.from_metadata(meta)
    assert toy.encode("<s>ab<think></s>", special=True) == [257, 256, 258, 260]
    assert (toy.n_vocab, toy.decodable, toy.bos, toy.eos, toy.add_bos) == (264, 261, 257, 260, False)
    assert np.flatnonzero(~toy.decodable_mask(264)).tolist() == [259, 261, 262, 263]
    assert meta["tokenizer.chat_template"] == "{{ 1 }}"
    assert "tokenizer.ggml.padding_token_id" not in meta


def test_merges_of_both_spellings_convert() -> None:
    files, config = hf_files()
    assert metadata_from_hf(files, config, "gpt-2")["tokenizer.ggml.merges"] == ["a b"]
    files["model"]["merges"] = ["a b"]
    assert metadata_from_hf(files, config, "gpt-2")["tokenizer.ggml.merges"] == ["a b"]


@pytest.mark.parametrize(("stated", "in_template"), list(itertools.product([None, True, False], [True, False])))
def test_bos_comes_from_the_config_or_the_post_processor(stated: bool | None, in_template: bool) -> None:
    files, config = hf_files(**({} if stated is None else {"add_bos_token": stated}))
    step = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
    if in_template:
        files["post_processor"] = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, step]}
    expected = in_template if stated is None else stated
    assert metadata_from_hf(files, config, "gpt-2")["tokenizer.ggml.add_bos_token"] is expected


@pytest.mark.parametrize("condition", ["lstrip", "rstrip", "single_word"])
def test_an_added_token_with_conditions_is_refused(condition: str) -> None:
    files, config = hf_files()
    files["added_tokens"][1][condition] = True
    with pytest.raises(TokenizerError, match=f"'<think>' has {condition}, which a GGUF file cannot say"):
        metadata_from_hf(files, config, "gpt-2")


def scored_files() -> tuple[dict[str, Any], dict[str, Any]]:
    texts = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "ab", "abb", "a", "b"]
    model = {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "merges": [["a", "b"], "ab b", ["a", "bb"]]}
    added = [{"id": i, "content": text, "special": True} for i, text in enumerate(texts[:2])]
    files = {"model": {**model, "vocab": {text: i for i, text in enumerate(texts)}}, "added_tokens": added}
    return files, {"bos_token": "<s>", "unk_token": "<unk>"}


def test_a_bpe_with_byte_fallback_becomes_scored_pieces() -> None:
    files, config = scored_files()
    meta = metadata_from_hf(files, config, "default", n_vocab=264)
    assert meta["tokenizer.ggml.model"] == "llama"
    assert meta["tokenizer.ggml.scores"] == [0.0] * 259 + [-1.0] + [0.0] * 4
    assert meta["tokenizer.ggml.token_type"] == [2, 3, *[6] * 256, 1, 1, 1, 1, 5, 5]
    assert meta["tokenizer.ggml.unknown_token_id"] == 0
    assert "tokenizer.ggml.merges" not in meta
    assert Tokenizer.from_metadata(meta).encode("abb\n") == [259, 2 + 10]


@pytest.mark.parametrize(
    ("part", "step", "prefix"),
    [
        ("normalizer", {"type": "Prepend", "prepend": "\u2581"}, True),
        ("normalizer", {"type": "Replace", "content": "\u2581"}, False),
        ("pre_tokenizer", {"type": "Metaspace", "prepend_scheme": "first"}, True),
        ("pre_tokenizer", {"type": "Metaspace", "prepend_scheme": "never"}, False),
        ("pre_tokenizer", None, False),
    ],
)
@pytest.mark.parametrize("in_sequence", [False, True])
def test_a_space_goes_before_a_text_where_the_file_puts_one(
    part: str, step: dict[str, Any] | None, prefix: bool, in_sequence: bool
) -> None:
    files, config = scored_files()
    steps = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}[part]
    files[part] = {"type": "Sequence", steps: [{"type": "x"}, step]} if in_sequence and step else step
    assert metadata_from_hf(files, config, "default")["tokenizer.ggml.add_space_prefix"] is prefix


def test_hugging_face_files_that_do_not_convert_are_refused() -> None:
    files, config = hf_files()
    with pytest.raises(TokenizerError, match=r"n_vocab is 260, but tokenizer\.json has id 260"):
        metadata_from_hf(files, config, "gpt-2", n_vocab=260)
    files["model"]["type"] = "Unigram"
    with pytest.raises(TokenizerError, match="'Unigram'"):
        metadata_from_hf(files, config, "gpt-2")
