"""Tensor names against gguf-py's own map."""

from __future__ import annotations

import pytest
from gguf import MODEL_ARCH, get_tensor_name_map

from minfer_models.arch import ARCHITECTURES
from minfer_models.arch.config import read_config
from minfer_models.convert.names import gguf_name, hf_name, is_computed
from minfer_models.gguf import Metadata
from minfer_models.gguf.encode import typed_entries
from minfer_models.synthetic import SyntheticModel


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_tensor_has_gguf_pys_name(architecture: str) -> None:
    model = SyntheticModel(architecture=architecture, n_blocks=12)
    config = read_config(Metadata(typed_entries(model.gguf_metadata())), architecture, 300)
    theirs = get_tensor_name_map(MODEL_ARCH[architecture.upper()], 12)
    names = {spec.name for spec in ARCHITECTURES[architecture].tensors(config)} - {"rope_freqs.weight"}
    assert len(names) > 100
    for name in names:
        assert gguf_name(hf_name(name)) == name
        assert theirs.get_name(hf_name(name), try_suffixes=(".weight", ".bias")) == name


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.01.mlp.up_proj.weight", "model.layers.-1.mlp.up_proj.weight", "model.layers.٣.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj.weight.weight", "layers.1.mlp.up_proj.weight",
        "model.layers.1.self_attn.rotary_emb.inv_freq\n", "lm_head.bias", "",
        "model.layers.1.mlp.experts.0.up_proj.weight",
    ],
)  # fmt: skip
def test_other_names_have_none(name: str) -> None:
    assert gguf_name(name) is None
    assert not is_computed(name)
