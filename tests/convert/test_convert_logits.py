"""A converted model computes what transformers computes from the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize, quantize
from hf_folders import logits, make_model, write_folder
from model_steps import exact_logits, opened

from minfer_models.convert import convert

TOKENS = np.random.default_rng(5).integers(0, 260, 120).tolist()
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with as many kv heads": ("llama", {"num_key_value_heads": 8}),
    "llama, tied, stretched as Llama 3.1": ("llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    "llama, head dim apart": ("llama", {"head_dim": 16}),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}}),
    "llama, biases": ("llama", {"attention_bias": True}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2, tied, yarn": ("qwen2", {"tie_word_embeddings": True, "rope_parameters": YARN}),
    "qwen2, yarn of another amplitude": ("qwen2", {"rope_parameters": YARN | {"attention_factor": 1.3}}),
    "qwen2, yarn, two scales": ("qwen2", {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.4}}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3, tied": ("qwen3", {"head_dim": 8, "tie_word_embeddings": True, "num_key_value_heads": 4}),
}
EXACT = {"rtol": 0, "atol": 1e-5}
"""Logits spread by 0.7; sums of float32 in another order differ by 2e-6."""
F32_KERNELS = {"rtol": 0, "atol": 2e-5}


def drop_output_bias(model: Any) -> None:
    """transformers' llama has a bias on the output projection too, GGUF's as minfer runs it hasn't."""
    for layer in model.model.layers:
        if layer.self_attn.o_proj.bias is not None:
            torch.nn.init.zeros_(layer.self_attn.o_proj.bias)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    architecture, config = CASES[case]
    model = make_model(architecture, **config)
    drop_output_bias(model)
    folder = write_folder(tmp_path / "hf", model)
    path = convert(folder, tmp_path / "m.gguf", "f32")
    wanted = logits(model, TOKENS)
    assert 0.3 < wanted.std() < 3
    np.testing.assert_allclose(exact_logits(path, TOKENS), wanted, **EXACT)
    with opened(path, kv="f32") as llm:
        np.testing.assert_allclose(llm.logits(TOKENS), wanted, **F32_KERNELS)


@pytest.mark.parametrize("case", ["llama", "qwen2", "qwen3"])
def test_what_is_written_is_what_the_folder_says(case: str, tmp_path: Path) -> None:
    """The metadata by gguf-py, beside the numbers given to transformers."""
    architecture, config = CASES[case]
    path = convert(write_folder(tmp_path / "tiny model", make_model(architecture, **config)), tmp_path / "m.gguf")
    fields = {key: field.contents() for key, field in GGUFReader(path).fields.items()}
    own = {key.removeprefix(f"{architecture}."): value for key, value in fields.items() if key.startswith(architecture)}
    head_dim = config.get("head_dim", 8)
    assert own == {
        "block_count": 2,
        "context_length": 256,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": pytest.approx(1e-6),
        "vocab_size": 288,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": head_dim,
    }
    general = {key: value for key, value in fields.items() if key.startswith("general.")}
    assert general == {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": "tiny model",
        "general.file_type": 0,
    }


def test_a_head_that_equals_the_tied_table_is_left_out(tmp_path: Path) -> None:
    """And one that differs is kept, as in transformers, which doesn't tie them then."""
    model = make_model("llama")
    for differs in (False, True):
        folder = tmp_path / f"differs-{differs}"
        if not differs:
            kept = model.lm_head.weight.data
            model.lm_head.weight.data = model.model.embed_tokens.weight.data.clone()
        write_folder(folder, model)
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
        path = convert(folder, tmp_path / f"{differs}.gguf", "f32")
        assert ("output.weight" in {t.name for t in GGUFReader(path).tensors}) is differs
        np.testing.assert_allclose(exact_logits(path, TOKENS[:20]), logits(model, TOKENS[:20]), **EXACT)
        model.lm_head.weight.data = kept


def test_shards_of_a_folder_are_one_model(tmp_path: Path, llama_model: Any) -> None:
    folder = write_folder(tmp_path / "hf", llama_model, shard="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 3
    single = write_folder(tmp_path / "single", llama_model)
    paths = [convert(source, tmp_path / f"{i}.gguf", "f32") for i, source in enumerate((folder, single))]
    tensors = [{t.name: t.data.tobytes() for t in GGUFReader(path).tensors} for path in paths]
    assert tensors[0] == tensors[1]


def by_gguf_py(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    return {t.name: (t.tensor_type.name, np.asarray(t.data)) for t in GGUFReader(path).tensors}


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("type_name", ["auto", "f32", "f16", "bf16", "q8_0"])
def test_values_of_every_pair_of_types(tmp_path: Path, source: str, type_name: str) -> None:
    """Weights of qwen2, which keep their rows, against torch's and gguf-py's own conversions."""
    model = make_model("qwen2")
    path = convert(write_folder(tmp_path / "hf", model, dtype=getattr(torch, source)), tmp_path / "m.gguf", type_name)
    wanted_type = {"auto": {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[source]}.get(
        type_name, type_name.upper()
    )
    stored = {name.removeprefix("model."): tensor for name, tensor in model.state_dict().items()}
    names = {
        "token_embd.weight": "embed_tokens.weight",
        "output.weight": "lm_head.weight",
        "blk.1.attn_k.weight": "layers.1.self_attn.k_proj.weight",
        "blk.0.attn_k.bias": "layers.0.self_attn.k_proj.bias",
        "blk.0.ffn_down.weight": "layers.0.mlp.down_proj.weight",
        "blk.1.ffn_norm.weight": "layers.1.post_attention_layernorm.weight",
    }
    found = by_gguf_py(path)
    for ours, theirs in names.items():
        values = stored[theirs].to(getattr(torch, source)).float()
        kind, data = found[ours]
        if values.ndim == 1:
            assert (kind, data.tolist()) == ("F32", values.tolist())
            continue
        assert kind == wanted_type, ours
        if kind == "Q8_0":
            assert np.array_equal(data, quantize(values.numpy(), type_of(kind)))
        else:
            torch_type = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
            assert np.array_equal(dequantize(data, type_of(kind)), values.to(torch_type).float().numpy())


def type_of(name: str) -> Any:
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType[name]


def test_rows_that_are_no_whole_blocks_become_f16(tmp_path: Path) -> None:
    model = make_model("qwen2", intermediate_size=80)
    heard: list[str] = []
    from minfer_models.convert import plan_conversion

    plan = plan_conversion(write_folder(tmp_path / "hf", model), "q8_0", notice=heard.append)
    assert {name: fmt.name for name, fmt in plan.fallbacks.items()} == {
        "blk.0.ffn_down.weight": "F16",
        "blk.1.ffn_down.weight": "F16",
    }
    path = plan.write(tmp_path / "m.gguf")
    assert {kind for name, (kind, _) in by_gguf_py(path).items() if "ffn_down" in name} == {"F16"}
    assert heard == []


def test_pieces_do_not_show(tmp_path: Path, llama_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are permuted within whole heads, however few are read at a time."""
    folder = write_folder(tmp_path / "hf", llama_model)
    whole = convert(folder, tmp_path / "whole.gguf", "f32")
    monkeypatch.setattr("minfer_models.convert.weights.PIECE_ELEMENTS", 64 * (3 * 8 + 5))
    heard: list[tuple[str, int]] = []
    pieces = convert(folder, tmp_path / "pieces.gguf", "f32", hear=lambda *piece: heard.append(piece))
    assert pieces.read_bytes() == whole.read_bytes()
    assert [nbytes for name, nbytes in heard if name == "blk.0.attn_q.weight"] == [
        64 * 24 * 4,
        64 * 24 * 4,
        64 * 16 * 4,
    ]
