"""Model files that can't be run: the exact cause, found before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_steps import opened

from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_models.engine import EngineOptions
from minfer_models.gguf import GGUFError, GGUFFile, TensorSource, array_source, file_source, open_gguf, write_gguf
from minfer_models.inspect import summarize
from minfer_models.loading import load
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model

Change = Callable[[GGUFFile, dict[str, Any], dict[str, TensorSource]], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model: 14 query heads, 2 KV heads, five blocks."""
    sizes = {"n_heads": 14, "n_kv_heads": 2, "head_dim": 32, "n_blocks": 5, "tied": False}
    path = tmp_path_factory.mktemp("whole") / "whole.gguf"
    return write_model(path, SyntheticModel(architecture="qwen2", **sizes))


def changed(whole: Path, target: Path, change: Change) -> Path:
    """`whole` with its metadata and tensors changed."""
    with open_gguf(whole) as file:
        metadata = dict(file.metadata.typed_items())
        tensors = {name: file_source(file, name) for name in file.tensors}
        change(file, metadata, tensors)
        return write_gguf(target, metadata, tensors.values())[0]


def refusal(path: Path) -> str:
    """What loading says, having read no weight and compiled nothing."""
    touched: list[object] = []
    backend = NumpyBackend()
    with pytest.raises(GGUFError) as caught:
        load(path, backends=[backend], settings=Settings(), on_weight=lambda *a: touched.append(a))
    assert touched == []
    assert backend.weight_bytes() == 0
    return str(caught.value)


def put(key: str, value: Any) -> Change:
    return lambda _, metadata, __: metadata.update({key: value})


def drop_key(key: str) -> Change:
    return lambda _, metadata, __: metadata.pop(key)


def drop_tensor(name: str) -> Change:
    return lambda _, __, tensors: tensors.pop(name)


def reshape(name: str, shape: tuple[int, ...]) -> Change:
    def change(file: GGUFFile, _: dict[str, Any], tensors: dict[str, TensorSource]) -> None:
        values = np.ones(shape, np.float32)
        tensors[name] = array_source(name, values)

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "no blocks": (put("qwen2.block_count", 0), r"qwen2\.block_count.*is 0, expected a positive count"),
    "no heads": (put("qwen2.attention.head_count", 0), r"qwen2\.attention\.head_count.*is 0, expected a positive"),
    "no KV heads": (put("qwen2.attention.head_count_kv", 0), r"qwen2\.attention\.head_count_kv.*is 0, expected"),
    "14 over 3 heads": (
        put("qwen2.attention.head_count_kv", 3),
        r"head_count_kv.*14 query heads aren't a multiple of 3 KV heads",
    ),
    "a missing size": (drop_key("qwen2.embedding_length"), r"qwen2\.embedding_length.*missing"),
    "a missing epsilon": (drop_key("qwen2.attention.layer_norm_rms_epsilon"), r"layer_norm_rms_epsilon.*missing"),
    "a size of the wrong type": (put("qwen2.block_count", "five"), r"qwen2\.block_count.*'five'"),
    "a missing tensor": (
        drop_tensor("blk.3.ffn_up.weight"),
        r"blk\.3\.ffn_up\.weight.*missing; expected shape \[512, 256\]",
    ),
    "a missing bias": (drop_tensor("blk.4.attn_k.bias"), r"blk\.4\.attn_k\.bias.*missing; expected shape \[64\]"),
    "an embedding of one number": (reshape("token_embd.weight", ()), r"token_embd\.weight.*\(\), which is no matrix"),
    "no embedding": (drop_tensor("token_embd.weight"), r"token_embd\.weight.*missing"),
    "two billion blocks": (put("qwen2.block_count", 2**31 - 1), r"blk\.5\.attn_norm\.weight.*missing"),
    "a block too many": (put("qwen2.block_count", 4), r"blk\.4\..*isn't a tensor that this architecture uses"),
    "fewer blocks than said": (put("qwen2.block_count", 6), r"blk\.5\.attn_norm\.weight.*missing"),
    "a transposed matrix": (
        reshape("blk.1.ffn_down.weight", (512, 256)),
        r"blk\.1\.ffn_down\.weight.*\(512, 256\).*\(256, 512\)",
    ),
    "one row fewer": (
        reshape("blk.2.ffn_down.weight", (255, 512)),
        r"blk\.2\.ffn_down\.weight.*\(255, 512\).*\(256, 512\)",
    ),
    "a head of another vocabulary": (reshape("output.weight", (257, 256)), r"output\.weight.*\(257, 256\).*256\)"),
    "a bias too long": (reshape("blk.0.attn_v.bias", (65,)), r"blk\.0\.attn_v\.bias.*\(65,\).*\(64,\)"),
    "a norm that is a matrix": (reshape("output_norm.weight", (1, 256)), r"output_norm\.weight.*\(1, 256\).*\(256,\)"),
    "heads of another size": (put("qwen2.attention.key_length", 16), r"value_length.*is 32, differing from key_length"),
    "an unknown architecture": (
        put("general.architecture", "qwen22"),
        r"general\.architecture.*'qwen22'; known: llama, qwen2, qwen3",
    ),
    "an unknown rope scaling": (put("qwen2.rope.scaling.type", "dynamic"), r"'dynamic'; known: none, linear, yarn"),
    "a rope of odd width": (put("qwen2.rope.dimension_count", 31), r"rope\.dimension_count.*is 31, expected an even"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_that_contradicts_itself_is_refused(case: str, whole: Path, tmp_path: Path) -> None:
    change, message = REFUSED[case]
    path = changed(whole, tmp_path / "changed.gguf", change)
    found = refusal(path)
    assert re.search(message, found), found
    assert "changed.gguf" in found


def test_the_unchanged_model_runs(whole: Path, tmp_path: Path) -> None:
    path = changed(whole, tmp_path / "same.gguf", lambda *_: None)
    assert path.read_bytes() == whole.read_bytes()
    with opened(path) as llm:
        assert np.isfinite(llm.logits([1, 2, 3])).all()


NAN16, INF16 = b"\x00\x7e", b"\x00\x7c"
DAMAGE: dict[str, tuple[str, str, int, bytes, int, str]] = {
    "an infinite scale of Q4_0": ("Q4_0", "blk.1.ffn_up.weight", 2 * 144 + 5 * 18, INF16, 5, "a scale of row 2"),
    "a NaN scale of Q8_0": ("Q8_0", "blk.0.attn_q.weight", 255 * 272 + 7 * 34, NAN16, 7, "a scale of row 255"),
    "a NaN of F32": ("F32", "token_embd.weight", 4 * (256 * 31 + 9), b"\x00\x00\xc0\x7f", 9, "a value of row 31"),
    "a NaN norm": ("Q8_0", "blk.0.attn_norm.weight", 4 * 200, b"\x01\x00\x80\xff", 200, "a value of row 0"),
    "an infinite minimum of Q4_K": ("Q4_K", "blk.1.ffn_down.weight", 144 * 3 + 2, INF16, 1, "a scale of row 1"),
    "an infinite value of BF16": ("BF16", "blk.1.attn_output.weight", 2 * 256, b"\x80\xff", 0, "a value of row 1"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_weight_that_is_no_number_is_named(case: str, tmp_path: Path) -> None:
    weights, tensor, at, damage, block, where = DAMAGE[case]
    path = write_model(tmp_path / "damaged.gguf", SyntheticModel(weights=weights))
    with open_gguf(path) as file:
        offset = file.tensor(tensor).offset + at
    with path.open("r+b") as raw:
        raw.seek(offset)
        raw.write(damage)
    with pytest.raises(GGUFError) as caught:
        opened(path)
    message = str(caught.value)
    assert re.search(rf"{re.escape(tensor)}.*{where}, block {block} is NaN or infinite", message), message
    assert str(offset - (2 if "minimum" in case else 0)) in message


def test_a_vocabulary_with_ids_that_have_no_row_is_refused(whole: Path, tmp_path: Path) -> None:
    """Such an id would be an index past the embedding's end."""

    def add_token(file: GGUFFile, metadata: dict[str, Any], _: dict[str, TensorSource]) -> None:
        metadata["tokenizer.ggml.tokens"] = [*file.metadata.strings("tokenizer.ggml.tokens"), "more"]
        metadata["tokenizer.ggml.token_type"] = [*file.metadata.integers("tokenizer.ggml.token_type"), 1]

    path = changed(whole, tmp_path / "more.gguf", add_token)
    expected = r"key 'tokenizer\.ggml\.tokens': has 259 tokens, but token_embd\.weight has 258 rows \(at byte \d+\)"
    with pytest.raises(GGUFError, match=expected):
        opened(path)
    with open_gguf(path) as file:
        (reason,) = summarize(file, EngineOptions(), Settings()).reasons
    assert re.search(expected, reason)
