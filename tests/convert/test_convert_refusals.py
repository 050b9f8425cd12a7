"""What cannot be converted faithfully is refused with its place, and then nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from hf_folders import SIZES, edit_json, make_model, write_folder
from safetensors.torch import load_file, save_file

from minfer_models.convert import ConvertError, convert, plan_conversion
from minfer_models.gguf import GGUFError

INDEX = "model.safetensors.index.json"
Q = "model.layers.1.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"


def refused(folder: Path, message: str, type_name: str = "auto") -> ConvertError:
    """The error of converting `folder`, after which nothing has appeared beside it."""
    out = folder.parent / "out"
    out.mkdir()
    with pytest.raises(ConvertError, match=message) as caught:
        convert(folder, out / "m.gguf", type_name)
    assert list(out.iterdir()) == []
    assert "\n" not in str(caught.value)
    return caught.value


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": (
        {"architectures": ["GPT2LMHeadModel"]},
        r"'architectures': is 'GPT2LMHeadModel'; these convert: LlamaForCausalLM, Mistral",
    ),
    "two architectures": (
        {"architectures": ["LlamaForCausalLM", "X"]},
        r"'architectures': is \['LlamaForCausalLM', 'X'\], expected one name",
    ),
    "no architecture": ({"architectures": None, "model_type": "t5"}, r"'model_type': is 't5'; these convert"),
    "quantized": (
        {"quantization_config": {"quant_method": "fp8"}},
        r"'quantization_config': the weights are quantized \('fp8'\)",
    ),
    "gelu": ({"hidden_act": "gelu"}, r"'hidden_act': is 'gelu'; llama in GGUF is silu"),
    "mlp_bias": ({"mlp_bias": True}, r"'mlp_bias': biases of the feed-forward network"),
    "no size": ({"hidden_size": None}, r"'hidden_size': is missing"),
    "a size of text": ({"intermediate_size": "96"}, r"'intermediate_size': is '96', expected a positive count"),
    "a size of 0": ({"num_hidden_layers": 0}, r"'num_hidden_layers': is 0, expected a positive count"),
    "true for a size": ({"num_attention_heads": True}, r"'num_attention_heads': is True, expected a positive count"),
    "a size beyond all": ({"vocab_size": 2**40}, r"'vocab_size': is 1099511627776, expected a positive count"),
    "a billion layers": (
        {"num_hidden_layers": 2**30},
        r"'num_hidden_layers': is 1073741824, but the folder's files have 21 tensors",
    ),
    "heads that don't divide": (
        {"num_attention_heads": 7, "head_dim": None, "num_key_value_heads": 7},
        r"'hidden_size': is 64, not a multiple of 7 heads",
    ),
    "kv heads that don't divide": (
        {"num_key_value_heads": 3},
        r"'llama.attention.head_count_kv': 8 query heads aren't a multiple of 3",
    ),
    "eps that is no number": ({"rms_norm_eps": "1e-6"}, r"'rms_norm_eps': is '1e-6', expected a number"),
    "rope in part": (
        {"partial_rotary_factor": 0.5},
        r"'rope_parameters.partial_rotary_factor': heads that rotate in part",
    ),
    "dynamic rope": (
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        r"'rope_scaling.rope_type': is 'dynamic'; default, linear, yarn and llama3",
    ),
    "longrope": (
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
        r"'rope_parameters.rope_type': is 'longrope'",
    ),
    "rope by layer": (
        {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
        r"'rope_parameters': differs from layer to layer",
    ),
    "yarn without rounding": (
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False}},
        r"'rope_scaling.truncate': yarn",
    ),
    "linear without factor": ({"rope_scaling": {"rope_type": "linear"}}, r"'rope_scaling.factor': is missing"),
    "llama3 out of order": (
        {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}},
        r"'rope_scaling.factor': factor 8.0, low_freq_factor 4.0, high_freq_factor 1.0",
    ),
    "a base of 0": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 0}},
        r"'llama.rope.freq_base': is 0.0, expected a positive",
    ),
    "tied or not": ({"tie_word_embeddings": "yes"}, r"'tie_word_embeddings': is 'yes', expected true or false"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_configs_that_do_not_convert(llama_folder: Path, case: str) -> None:
    change, message = CONFIGS[case]
    edit_json(llama_folder / "config.json", lambda value: value | change)
    assert refused(llama_folder, message).path == llama_folder / "config.json"


@pytest.mark.parametrize(
    ("window", "converts"),
    [
        ({"use_sliding_window": False, "sliding_window": 16}, True),
        ({"use_sliding_window": True, "sliding_window": 256}, True),
        ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}, True),
        ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}, False),
        ({"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention"] * 2}, True),
        (
            {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"]},
            False,
        ),
    ],
)
def test_a_sliding_window_that_any_layer_has(tmp_path: Path, window: dict[str, Any], converts: bool) -> None:
    folder = write_folder(tmp_path / "hf", make_model("qwen2"))
    edit_json(folder / "config.json", lambda value: value | {"layer_types": None} | window)
    if converts:
        plan_conversion(folder)
    else:
        refused(folder, r"'use_sliding_window': a sliding window of 16 tokens is not converted")


@pytest.mark.parametrize(
    ("window", "converts"),
    [({"sliding_window": None}, True), ({"sliding_window": 256}, True), ({"sliding_window": 255}, False), ({}, True)],
)
def test_a_window_that_all_layers_have(tmp_path: Path, window: dict[str, Any], converts: bool) -> None:
    folder = write_folder(tmp_path / "hf", make_model("mistral"))

    def change(value: dict[str, Any]) -> dict[str, Any]:
        del value["sliding_window"]
        return value | window

    edit_json(folder / "config.json", change)
    if converts:
        assert plan_conversion(folder).metadata["general.architecture"] == "llama"
    else:
        refused(folder, r"'sliding_window': a sliding window of 255 tokens in a context of 256 is not converted")
    edit_json(folder / "config.json", lambda value: value | {"max_position_embeddings": 8192})
    if not window:  # silence means 4096
        with pytest.raises(ConvertError, match="a sliding window of 4096 tokens in a context of 8192"):
            plan_conversion(folder)


Tensors = dict[str, torch.Tensor]


def rewrite(folder: Path, change: Callable[[Tensors], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")


def _drop(tensors: Tensors) -> None:
    del tensors[Q]


def _extra(tensors: Tensors) -> None:
    tensors["model.layers.0.self_attn.sinks"] = torch.zeros(8)


def _layer_too_many(tensors: Tensors) -> None:
    tensors["model.layers.2.mlp.up_proj.weight"] = torch.zeros(96, 64)


def _bias(tensors: Tensors) -> None:
    tensors["model.layers.0.self_attn.o_proj.bias"] = torch.ones(64)


def _transposed(tensors: Tensors) -> None:
    tensors[K] = tensors[K].T


def _fewer_rows(tensors: Tensors) -> None:
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:280]


def _fp8(tensors: Tensors) -> None:
    tensors[Q] = tensors[Q].to(torch.float8_e4m3fn)


def _int8(tensors: Tensors) -> None:
    tensors[K] = tensors[K].to(torch.int8)


def _double(tensors: Tensors) -> None:
    tensors["model.norm.weight"] = tensors["model.norm.weight"].double()


def _headless(tensors: Tensors) -> None:
    del tensors["lm_head.weight"]


def _nan(tensors: Tensors) -> None:
    tensors[Q][5, 7] = torch.nan


def _infinite(tensors: Tensors) -> None:
    tensors["model.layers.0.mlp.down_proj.weight"] = torch.zeros(64, 96, dtype=torch.bfloat16)
    tensors["model.layers.0.mlp.down_proj.weight"][63, 95] = -torch.inf


CHANGES: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "one missing": (_drop, rf"tensor '{Q}': is missing; expected shape \[64, 64\]"),
    "one unknown": (
        _extra,
        r"model.safetensors: tensor 'model.layers.0.self_attn.sinks': is not a tensor of LlamaForCausalLM",
    ),
    "a layer too many": (
        _layer_too_many,
        r"tensor 'model.layers.2.mlp.up_proj.weight': is not a tensor of this architecture",
    ),
    "a bias": (_bias, r"tensor 'model.layers.0.self_attn.o_proj.bias': is not a tensor of this architecture"),
    "transposed": (_transposed, rf"tensor '{K}': has the shape \[64, 16\]; config.json needs \[16, 64\]"),
    "fewer rows": (
        _fewer_rows,
        r"'model.embed_tokens.weight': has the shape \[280, 64\]; config.json needs \[288, 64\]",
    ),
    "fp8": (_fp8, rf"tensor '{Q}': is stored as F8_E4M3; F32, F16 and BF16 convert"),
    "int8": (_int8, rf"tensor '{K}': is stored as I8"),
    "double": (_double, r"tensor 'model.norm.weight': is stored as F64"),
    "no head": (_headless, r"tensor 'lm_head.weight': is missing, and config.json doesn't tie it to the embedding"),
    "NaN": (_nan, rf"tensor '{Q}': row 5, element 7 is nan"),
    "infinite": (_infinite, r"tensor 'model.layers.0.mlp.down_proj.weight': row 63, element 95 is -inf"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_tensors_that_do_not_convert(llama_folder: Path, case: str) -> None:
    change, message = CHANGES[case]
    rewrite(llama_folder, change)
    refused(llama_folder, message)


def test_the_place_of_a_value_counts_all_pieces(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer_models.convert.weights.PIECE_ELEMENTS", 64 * 8)
    rewrite(llama_folder, lambda tensors: tensors[Q].__setitem__((37, 7), torch.nan))
    refused(llama_folder, rf"tensor '{Q}': row 37, element 7 is nan")


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("type_name", ["auto", "f32", "f16", "bf16", "q8_0"])
def test_a_value_beyond_f16_never_becomes_infinite(llama_folder: Path, stored: torch.dtype, type_name: str) -> None:
    def large(tensors: Tensors) -> None:
        for name in tensors:
            tensors[name] = tensors[name].to(stored)
        tensors[Q][3, 4] = -1e5

    rewrite(llama_folder, large)
    if type_name == "f16":
        refused(
            llama_folder,
            rf"tensor '{Q}': row 3, element 4 is -(100000|99840), which F16 can't hold; --type auto",
            "f16",
        )
        return
    path = convert(llama_folder, llama_folder.parent / "m.gguf", type_name)
    from gguf.quants import dequantize

    (tensor,) = [t for t in GGUFReader(path).tensors if t.name == "blk.1.attn_q.weight"]
    values = dequantize(tensor.data, tensor.tensor_type)
    assert np.isfinite(values).all()
    # row 3 of the first head of 8 goes to row 6: its half's fourth, and every other row is the other half's
    assert values[6, 4] == pytest.approx(-1e5, rel=0.01)


def test_the_largest_f16_still_converts(llama_folder: Path) -> None:
    rewrite(llama_folder, lambda tensors: tensors[Q].__setitem__((0, 0), 65519.0))  # rounds to 65504
    path = convert(llama_folder, llama_folder.parent / "m.gguf", "f16")
    (tensor,) = [t for t in GGUFReader(path).tensors if t.name == "blk.1.attn_q.weight"]
    assert float(np.asarray(tensor.data)[0, 0]) == 65504.0


def test_q8_0_beyond_its_scale_is_refused(llama_folder: Path) -> None:
    rewrite(llama_folder, lambda tensors: tensors[Q].__setitem__((0, 0), 1e30))
    refused(llama_folder, rf"tensor '{Q}': row 0, element 0 is 1e\+30, which Q8_0 can't hold", "q8_0")


def test_frequencies_that_old_files_store_are_no_loss(llama_folder: Path) -> None:
    rewrite(
        llama_folder, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    )
    plan_conversion(llama_folder)


@pytest.fixture
def sharded(tmp_path: Path, llama_model: Any) -> Path:
    return write_folder(tmp_path / "sharded", llama_model, shard="60KB")


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _gone(folder: Path) -> str:
    shards(folder)[1].unlink()
    return rf"1 of \d+ files of weights are missing: {shards(folder)[0].name.replace('00001', '00002')}"


def _cut(folder: Path) -> str:
    path = shards(folder)[1]
    path.write_bytes(path.read_bytes()[:-100])
    return rf"{path.name}: tensor .* shorter than declared by 100 bytes \(incomplete download\?\)"


def _stump(folder: Path) -> str:
    """0.5 % of a file."""
    path = shards(folder)[1]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 200])
    return rf"{path.name}: the header is said to have \d+ bytes, in a file of \d+ \(incomplete download\?\)"


def _map(folder: Path, **entries: Any) -> None:
    edit_json(folder / INDEX, lambda value: {"weight_map": value["weight_map"] | entries})


def _escape(folder: Path) -> str:
    _map(folder, x="../secret.safetensors")
    return rf"{INDEX}: tensor 'x': is said to be in '../secret.safetensors', not a file of this folder"


def _absolute(folder: Path) -> str:
    _map(folder, x="/etc/passwd")
    return r"tensor 'x': is said to be in '/etc/passwd', not a file"


def _backslash(folder: Path) -> str:
    _map(folder, x="..\\secret")
    return r"tensor 'x': is said to be in '..\\\\secret', not a file"


def _parent(folder: Path) -> str:
    _map(folder, x="..")
    return r"tensor 'x': is said to be in '..', not a file"


def _number(folder: Path) -> str:
    _map(folder, x=3)
    return r"tensor 'x': is said to be in 3, not a file"


def _lost(folder: Path) -> str:
    _map(folder, x=shards(folder)[0].name)
    return r"00001.*: tensor 'x': is not there, but model.safetensors.index.json says it is"


def _elsewhere(folder: Path) -> str:
    _map(folder, **{"model.norm.weight": shards(folder)[0].name})
    return r"tensor 'model.norm.weight': is in this file, but model.safetensors.index.json says"


def _twice(folder: Path) -> str:
    tensors = load_file(shards(folder)[0])
    tensors["model.norm.weight"] = torch.ones(64)
    save_file(tensors, shards(folder)[0])
    return r"tensor 'model.norm.weight': is in this file, but model.safetensors.index.json says"


def _unlisted(folder: Path) -> str:
    tensors = load_file(shards(folder)[0])
    tensors["extra"] = torch.ones(64)
    save_file(tensors, shards(folder)[0])
    return r"tensor 'extra': is in this file, but model.safetensors.index.json doesn't know it"


def _empty_index(folder: Path) -> str:
    (folder / INDEX).write_text("{}")
    return rf"{INDEX}: has no weight_map with tensors"


def _no_index(folder: Path) -> str:
    (folder / INDEX).unlink()
    return r"sharded: has model-00001-of-\d+.safetensors and \d more, but neither model.safetensors nor"


@pytest.mark.parametrize(
    "damage",
    [
        *(_gone, _cut, _stump, _escape, _absolute, _backslash, _parent, _number, _lost, _elsewhere, _twice, _unlisted),
        *(_empty_index, _no_index),
    ],
)
def test_shards_that_are_missing_or_disagree(sharded: Path, damage: Callable[[Path], str]) -> None:
    refused(sharded, damage(sharded))


def test_what_files_say_reaches_no_terminal_as_it_is(sharded: Path) -> None:
    _map(sharded, x="\x1b]0;title\x07\n.safetensors")
    error = refused(sharded, r"files of weights are missing: \\x1b\]0;title\\x07\\n.safetensors")
    assert str(error).isprintable()
    edit_json(sharded / "config.json", lambda value: value | {"hidden_act": "\x1b[2J" * 9})
    with pytest.raises(ConvertError) as caught:
        plan_conversion(sharded)
    assert str(caught.value).isprintable()


def test_what_is_no_folder_of_a_model(tmp_path: Path, llama_folder: Path) -> None:
    for path, message in (
        (tmp_path / "nowhere", "there is no such folder; expected the folder of a Hugging Face model"),
        (llama_folder / "config.json", "is a file; expected the folder"),
    ):
        with pytest.raises(ConvertError, match=message):
            plan_conversion(path)
    (llama_folder / "model.safetensors").unlink()
    with pytest.raises(ConvertError, match=r"has no model.safetensors and no model.safetensors.index.json"):
        plan_conversion(llama_folder)
    (llama_folder / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ConvertError, match=r"only safetensors files are read, and pytorch_model.bin can run code"):
        plan_conversion(llama_folder)
    (llama_folder / "config.json").unlink()
    with pytest.raises(ConvertError, match=r"config.json: is missing"):
        plan_conversion(llama_folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
def test_files_that_are_no_json_object(llama_folder: Path, name: str) -> None:
    (llama_folder / name).write_text('{"a": 1, "a": 2}')
    refused(llama_folder, rf"{name}: the file is not the JSON that is expected: key 'a' appears twice")


def test_no_file_of_the_folder_is_written_over(llama_folder: Path) -> None:
    config = (llama_folder / "config.json").read_bytes()
    link = llama_folder.parent / "link.gguf"
    link.symlink_to(llama_folder / "model.safetensors")
    for target in (llama_folder / "config.json", link):
        with pytest.raises(GGUFError, match=r"is what is read; name another file"):
            convert(llama_folder, target, overwrite=True)
    assert (llama_folder / "config.json").read_bytes() == config


def test_an_existing_file_is_kept_unless_asked(llama_folder: Path) -> None:
    target = llama_folder / "m.gguf"
    target.write_text("mine")
    with pytest.raises(GGUFError, match=r"m.gguf: exists already"):
        convert(llama_folder, target)
    assert target.read_text() == "mine"
    rewrite(llama_folder, _nan)
    with pytest.raises(ConvertError):  # also when the values turn out wrong while they're written
        convert(llama_folder, target, overwrite=True)
    assert target.read_text() == "mine"
    assert not [path for path in llama_folder.iterdir() if path.suffix == ".tmp"]
    rewrite(llama_folder, lambda tensors: tensors[Q].__setitem__((5, 7), 0.0))
    convert(llama_folder, target, overwrite=True)
    assert target.read_bytes()[:4] == b"GGUF"


def test_a_target_that_cannot_be_a_whole_file(llama_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match=r"is named like one of 2 shards"):
        convert(llama_folder, tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(GGUFError, match=r"is a folder; name a file"):
        convert(llama_folder, tmp_path)


def test_an_unknown_type(llama_folder: Path) -> None:
    refused(llama_folder, r"type 'q4_0' is not one of auto, f32, f16, bf16, q8_0", "q4_0")


def test_a_folder_of_links_is_a_folder(llama_folder: Path, tmp_path: Path) -> None:
    """As huggingface_hub's cache keeps it."""
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for file in llama_folder.iterdir():
        (linked / file.name).symlink_to(file)
    assert plan_conversion(linked).nbytes == plan_conversion(llama_folder).nbytes


def test_old_spellings_of_a_config(tmp_path: Path) -> None:
    """rope_theta and rope_scaling beside each other, model_type without architectures, nulls."""
    folder = write_folder(tmp_path / "hf", make_model("llama"))
    new = plan_conversion(folder).metadata

    def old(value: dict[str, Any]) -> dict[str, Any]:
        del value["rope_parameters"], value["architectures"]
        return value | {"rope_theta": 10000.0, "rope_scaling": None, "head_dim": None, "num_key_value_heads": 2}

    edit_json(folder / "config.json", old)
    assert plan_conversion(folder).metadata == new
    edit_json(folder / "config.json", lambda value: value | {"rope_scaling": {"type": "linear", "factor": 2}})
    scaled = plan_conversion(folder).metadata
    assert {key: scaled[key] for key in scaled.keys() - new.keys()} == {
        "llama.rope.scaling.type": "linear",
        "llama.rope.scaling.factor": 2.0,
    }


def test_qwen3_heads_are_128_wide_where_the_config_is_silent(tmp_path: Path) -> None:
    config = {"architectures": ["Qwen3ForCausalLM"]} | SIZES | {"tie_word_embeddings": True}
    shutil.copytree(write_folder(tmp_path / "hf", make_model("qwen3", head_dim=128)), tmp_path / "silent")
    (tmp_path / "silent" / "config.json").write_text(json.dumps(config))
    assert plan_conversion(tmp_path / "silent").metadata["qwen3.attention.key_length"] == 128
