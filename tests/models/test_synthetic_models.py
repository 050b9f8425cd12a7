"""The writer of synthetic models, read back by gguf-py; and the re-expression of a llama file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from model_steps import exact_logits

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_models.gguf import GGUFError, open_gguf
from minfer_models.synthetic import (
    SyntheticModel,
    byte_vocabulary,
    hf_vocabulary,
    llama3_factors,
    llama_as_qwen2,
    write_model,
)
from minfer_models.tokenizer import Tokenizer


def tensors_of(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    reader = gguf.GGUFReader(path)
    return {
        t.name: (t.tensor_type.name, dequantize(t.data, t.tensor_type).reshape(t.shape[::-1])) for t in reader.tensors
    }


def test_the_same_model_gives_the_same_bytes_and_another_seed_other_weights(tmp_path: Path) -> None:
    first, again, other = (
        write_model(tmp_path / f"{i}.gguf", SyntheticModel(seed=seed)).read_bytes() for i, seed in enumerate((7, 7, 8))
    )
    assert first == again
    assert len(first) == len(other)
    assert first != other


def test_a_tensors_weights_do_not_depend_on_the_other_tensors(tmp_path: Path) -> None:
    small = tensors_of(write_model(tmp_path / "small.gguf", SyntheticModel()))
    large = tensors_of(write_model(tmp_path / "large.gguf", SyntheticModel(n_blocks=5, tied=False)))
    same = "blk.1.attn_q.weight"
    np.testing.assert_array_equal(small[same][1], large[same][1])
    assert not np.array_equal(large[same][1], large["blk.0.attn_q.weight"][1])


def test_types_by_pattern_the_first_that_matches(tmp_path: Path) -> None:
    weights = {"blk.1.ffn_*": "Q3_K", "*ffn_up*": "IQ4_NL", "token_embd.weight": "bf16", "*": "Q5_1"}
    found = tensors_of(write_model(tmp_path / "m.gguf", SyntheticModel(weights=weights)))
    kinds = {name: kind for name, (kind, _) in found.items()}
    assert kinds["blk.1.ffn_up.weight"] == "Q3_K"
    assert kinds["blk.0.ffn_up.weight"] == "IQ4_NL"
    assert kinds["token_embd.weight"] == "BF16"
    assert kinds["blk.0.attn_q.weight"] == kinds["blk.1.attn_output.weight"] == "Q5_1"
    assert kinds["blk.0.attn_norm.weight"] == kinds["output_norm.weight"] == "F32"


@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
def test_weights_have_the_spread_that_keeps_activations_of_unit_size(weights: str, tmp_path: Path) -> None:
    found = tensors_of(write_model(tmp_path / "m.gguf", SyntheticModel(weights=weights)))
    for name in ("blk.0.attn_q.weight", "blk.1.ffn_gate.weight"):
        kind, values = found[name]
        assert kind == weights
        assert np.isfinite(values).all()
        assert 0.9 < values.std() * 16 < 1.1
        assert abs(values.mean()) < 0.1 * values.std()
    norm = found["blk.1.ffn_norm.weight"][1]
    assert 0.95 < norm.mean() < 1.05
    assert 0.05 < norm.std() < 0.2


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("n_blocks", "width"), [(2, 256), (12, 128), (2, 1024)])
def test_logits_are_neither_flat_nor_one_sided(n_blocks: int, width: int, tied: bool, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"n_blocks": n_blocks, "width": width, "tied": tied, "weights": "F16"}
    path = write_model(tmp_path / "m.gguf", SyntheticModel(**sizes, vocabulary=byte_vocabulary(5000)))
    tokens = np.random.default_rng(n_blocks + width).integers(0, 5000, 48).tolist()
    logits = exact_logits(path, tokens).astype(np.float64)
    spread = logits.std(axis=1)
    assert ((spread > 2) & (spread < 4.5)).all()
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    largest = 1 / chances.sum(axis=1)
    assert 0.05 < np.median(largest) < 0.9
    assert np.mean(logits.argmax(axis=1) == tokens) < 0.2
    assert len(set(logits.argmax(axis=1))) >= 8


def test_heads_sizes_and_optional_tensors_are_what_was_asked_for(tmp_path: Path) -> None:
    factors = llama3_factors(48, 500000.0, 8.0)
    sizes = {"width": 96, "ffn_width": 160, "n_heads": 6, "n_kv_heads": 3, "head_dim": 48, "rope_factors": factors}
    path = write_model(tmp_path / "m.gguf", SyntheticModel(tied=False, biases=True, **sizes))
    shapes = {name: values.shape for name, (_, values) in tensors_of(path).items()}
    assert shapes["blk.0.attn_q.weight"] == (288, 96)
    assert shapes["blk.0.attn_k.weight"] == (144, 96)
    assert shapes["blk.0.attn_output.weight"] == (96, 288)
    assert shapes["blk.1.attn_v.bias"] == (144,)
    assert shapes["blk.1.ffn_down.weight"] == (96, 160)
    assert shapes["output.weight"] == shapes["token_embd.weight"] == (258, 96)
    np.testing.assert_array_equal(tensors_of(path)["rope_freqs.weight"][1], factors)
    plain = tensors_of(write_model(tmp_path / "plain.gguf", SyntheticModel()))
    assert not {"output.weight", "rope_freqs.weight", "blk.0.attn_q.bias"} & set(plain)


def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for model, error, message in (
        (SyntheticModel(weights="Q4_K", width=96), GGUFError, "rows of 96 elements are not whole Q4_K blocks of 256"),
        (SyntheticModel(weights="Q4_9"), ValueError, "no format is called 'Q4_9'"),
        (SyntheticModel(weights={"*attn*": "Q8_0"}), ValueError, r"no pattern of weights matches 'token_embd.weight'"),
        (SyntheticModel(n_heads=3, n_kv_heads=1), GGUFError, "is 256, not a multiple of 3 heads"),
        (SyntheticModel(architecture="gpt2"), GGUFError, "is 'gpt2'; known: llama"),
    ):
        with pytest.raises(error, match=message):
            write_model(path, model)
        assert list(tmp_path.iterdir()) == []


def test_vocabularies(tmp_path: Path, qwen3_tokenizer: Path) -> None:
    small = Tokenizer.from_metadata(byte_vocabulary())
    assert small.encode("aé") == [0x61, 0xC3, 0xA9]
    real = hf_vocabulary(qwen3_tokenizer, "qwen2", n_vocab=151936)
    path = write_model(
        tmp_path / "m.gguf", SyntheticModel(architecture="qwen3", width=32, n_heads=1, n_kv_heads=1, vocabulary=real)
    )
    with open_gguf(path) as file:
        assert file.tensor("token_embd.weight").shape == (151936, 32)
        assert Tokenizer.from_metadata(file.metadata).encode("Hello world") == [9707, 1879]
    with pytest.raises(ValueError, match="at least 258"):
        byte_vocabulary(100)


def test_a_llama_file_becomes_qwen2_without_changing_a_weight(smollm2: Path, smollm2_qwen2: Path) -> None:
    """Rows of q and k change places as convert_hf_to_gguf.py's `permute` says; nothing else changes."""
    before, after = (gguf.GGUFReader(path) for path in (smollm2, smollm2_qwen2))
    old, new = ({t.name: t for t in reader.tensors} for reader in (before, after))
    assert {name for name in new if name not in old} == {f"blk.{i}.attn_{w}.bias" for i in range(30) for w in "qkv"}
    for name, tensor in old.items():
        data = np.asarray(new[name].data)
        assert new[name].tensor_type == tensor.tensor_type
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            assert not np.array_equal(data, tensor.data)
            heads = len(data) // 64
            data = data.reshape(heads, 2, 32, -1).swapaxes(1, 2).reshape(data.shape)  # LlamaModel.permute
        np.testing.assert_array_equal(data, tensor.data, err_msg=name)
    assert all(not new[f"blk.{i}.attn_{which}.bias"].data.any() for i in range(30) for which in "qkv")
    keys = [name.replace("llama.", "qwen2.") for name in before.fields]
    assert list(after.fields) == keys
    assert after.fields["general.architecture"].contents() == "qwen2"
    assert after.fields["qwen2.block_count"].contents() == 30


def test_only_plain_llama_files_are_re_expressed(tmp_path: Path) -> None:
    for changes, message in (
        ({"architecture": "qwen2"}, "is 'qwen2', expected 'llama'"),
        ({"biases": True}, "has no place in the re-expression"),
        ({"rope_factors": llama3_factors(64, 500000.0, 8.0)}, "has no place in the re-expression"),
        ({"metadata": {"rope.dimension_count": 32}}, "rope.dimension_count.*is 32, expected whole heads"),
    ):
        source = write_model(tmp_path / "source.gguf", SyntheticModel(**changes))
        with pytest.raises(GGUFError, match=message):
            llama_as_qwen2(source, tmp_path / "target.gguf")
        assert not (tmp_path / "target.gguf").exists()
