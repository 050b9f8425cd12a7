"""The config of a model: constants within float32, and refusals of keys that change the model."""

from __future__ import annotations

import re
from typing import Any

import gguf
import numpy as np
import pytest

from minfer_ir.ops.rope import RopeScaling
from minfer_models.arch.config import ModelConfig, read_config
from minfer_models.arch.unsupported import UNSUPPORTED
from minfer_models.gguf import GGUFError, Metadata, TypedValue
from minfer_models.synthetic import SyntheticModel

KINDS = {
    bool: gguf.GGUFValueType.BOOL,
    int: gguf.GGUFValueType.UINT64,
    float: gguf.GGUFValueType.FLOAT64,
    str: gguf.GGUFValueType.STRING,
}


def typed(value: Any) -> TypedValue:
    if isinstance(value, list):
        return TypedValue(gguf.GGUFValueType.ARRAY, np.array(value), KINDS[type(value[0])])
    return TypedValue(KINDS[type(value)], value)


def config(arch: str = "llama", **keys: Any) -> ModelConfig:
    """What is read from a model of head size 64 and context 2048 with these keys, `__` for a dot."""
    model = SyntheticModel(architecture=arch, metadata={key.replace("__", "."): v for key, v in keys.items()})
    meta = {key: typed(v) for key, v in model.gguf_metadata().items() if key.startswith(f"{arch}.")}
    return read_config(Metadata(meta), arch, model.n_vocab)


NORMAL = 2.0**-126
LARGEST = float(np.finfo(np.float32).max)
POSITIVE = ["attention__layer_norm_rms_epsilon", "rope__freq_base"]
YARN = {"rope__scaling__type": "yarn", "rope__scaling__original_context_length": 64}
YARN_POSITIVE = ["factor", "yarn_beta_fast", "yarn_beta_slow", "attn_factor"]


@pytest.mark.parametrize(
    "value", [0.0, -1.0, 1e300, 1e-300, 1e-40, NORMAL * (1 - 2**-40), LARGEST * 1.1, np.inf, np.nan]
)
def test_a_constant_that_float32_cannot_hold_is_refused(value: float) -> None:
    def refused(key: str, **keys: Any) -> None:
        with pytest.raises(GGUFError) as caught:
            config(**keys)
        assert re.search(
            rf"llama\.{re.escape(key)}.*is {re.escape(str(value))}, expected a positive", str(caught.value)
        )

    for key in POSITIVE:
        refused(key.replace("__", "."), **{key: value})
    for key in YARN_POSITIVE:
        refused(f"rope.scaling.{key}", **YARN, **{f"rope__scaling__{key}": value})
    refused("rope.scaling.factor", rope__scaling__type="linear", rope__scaling__factor=value)
    refused("rope.scale_linear", rope__scale_linear=value)


@pytest.mark.parametrize("value", [NORMAL, 1e-5, 3.0, LARGEST])
def test_the_ends_of_the_range_are_taken(value: float) -> None:
    read = config(attention__layer_norm_rms_epsilon=value, rope__freq_base=value)
    assert (read.norm_eps, read.rope_base) == (value, value)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, RopeScaling()),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, RopeScaling()),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, RopeScaling("linear", 4.0)),
        ({"rope__scaling__factor": 4.0}, RopeScaling("linear", 4.0)),
        ({"rope__scale_linear": 2.0}, RopeScaling("linear", 2.0)),
        ({"rope__scaling__factor": 4.0, "rope__scale_linear": 2.0}, RopeScaling("linear", 4.0)),
        ({**YARN, "rope__scale_linear": 2.0}, RopeScaling("yarn", 2.0, 64)),
        ({**YARN, "rope__scaling__attn_factor": 0.5}, RopeScaling("yarn", 1.0, 64, attention_factor=0.5)),
    ],
)
def test_a_factor_without_a_type_is_linear(keys: dict[str, Any], expected: RopeScaling) -> None:
    assert config(**keys).rope_scaling == expected


# Key: (values that ask for nothing, values that change the model). Head size 64, context 2048.
CHANGING: dict[str, tuple[list[Any], list[Any]]] = {
    "expert_count": ([0], [4, 1, "8", [0, 8]]),
    "attention.sliding_window": ([0, 2048, 4096, [0, 2048]], [16, 2047, [2048, 512]]),
    "attention.causal": ([True, 1], [False, 0]),
    "attention.scale": ([0.0, 0.125], [0.5, 1.0, 1e300]),
    "attention.clamp_kqv": ([0.0], [8.0, float("nan")]),
    "attention.max_alibi_bias": ([0.0], [8.0]),
    "attn_logit_softcapping": ([0.0], [30.0]),
    "final_logit_softcapping": ([0.0], [30.0]),
    "logit_scale": ([0.0, 1.0], [2.0, 0.0625]),
    "embedding_scale": ([0.0, 1.0], [12.0]),
    "residual_scale": ([0.0, 1.0], [0.22]),
    "rope.scaling.attn_factor": ([1.0], [2.0, 0.5]),
}


def test_every_unsupported_key_is_tried() -> None:
    assert CHANGING.keys() == UNSUPPORTED.keys()


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("key", CHANGING)
def test_a_key_that_changes_the_model_is_refused_unless_it_is_neutral(key: str, arch: str) -> None:
    neutral, changing = CHANGING[key]
    for value in neutral:
        assert config(arch, **{key: value}) == config(arch)
    for value in changing:
        with pytest.raises(GGUFError) as caught:
            config(arch, **{key: value})
        shown = repr(np.array(value) if isinstance(value, list) else value)
        expected = rf"{arch}\.{re.escape(key)}.*is {re.escape(shown)}: .*, which minfer does not implement for {arch}"
        assert re.search(expected, str(caught.value)), str(caught.value)


def test_scaled_rotations_under_linear_scaling_are_refused() -> None:
    keys: dict[str, Any] = {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
    with pytest.raises(GGUFError, match=r"attn_factor.*is 2\.0: scaled rotations without yarn"):
        config(**keys, rope__scaling__attn_factor=2.0)


def test_the_default_scale_may_be_written_in_float32() -> None:
    keys: dict[str, Any] = {"attention__key_length": 80, "attention__value_length": 80}
    exact, rounded = 80**-0.5, float(np.float32(80**-0.5))
    assert exact != rounded
    assert config(**keys, attention__scale=rounded) == config(**keys, attention__scale=exact) == config(**keys)


def test_a_mixture_is_named_before_the_sizes_it_lacks() -> None:
    model = SyntheticModel(metadata={"expert_count": 8})
    meta = {k: typed(v) for k, v in model.gguf_metadata().items() if k.startswith("llama.")}
    del meta["llama.feed_forward_length"]
    with pytest.raises(GGUFError, match=r"llama\.expert_count.*is 8: a mixture of experts"):
        read_config(Metadata(meta), "llama", model.n_vocab)
