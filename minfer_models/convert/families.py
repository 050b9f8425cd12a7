"""The architectures that convert: their names on both sides, and what transformers assumes where a config is silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minfer_models.convert.config import ConfigReader
from minfer_models.convert.errors import ConvertError


@dataclass(frozen=True, slots=True)
class Family:
    """A Hugging Face architecture and the GGUF one that it becomes.

    permuted: q and k change the order of their rows (see `minfer_models.convert.permute`). head_dim, n_kv_heads: the
    defaults of transformers' config class; None is width / heads, and the number of query heads. windowed: every layer
    has the sliding window of config.json, 4096 tokens unless it says null; elsewhere `use_sliding_window` asks for one.
    """

    hf_class: str
    model_type: str
    gguf: str
    permuted: bool
    head_dim: int | None = None
    n_kv_heads: int | None = None
    windowed: bool = False


WINDOW = 4096
FAMILIES = (
    Family("LlamaForCausalLM", "llama", "llama", permuted=True),
    Family("MistralForCausalLM", "mistral", "llama", permuted=True, n_kv_heads=8, windowed=True),
    Family("Qwen2ForCausalLM", "qwen2", "qwen2", permuted=False, n_kv_heads=32),
    Family("Qwen3ForCausalLM", "qwen3", "qwen3", permuted=False, head_dim=128, n_kv_heads=32),
)


def family_of(config: ConfigReader) -> Family:
    """The family that `architectures` names, or else `model_type`; raises ConvertError listing the known ones."""
    named: Any = config.values.get("architectures") or []
    if not isinstance(named, list) or len(named) > 1:
        raise config.error("architectures", f"is {named!r:.120}, expected one name")
    for family in FAMILIES:
        if named == [family.hf_class] or (not named and config.values.get("model_type") == family.model_type):
            return family
    key, found = ("architectures", named[0]) if named else ("model_type", config.values.get("model_type"))
    known = ", ".join(family.hf_class for family in FAMILIES)
    raise config.error(key, f"is {found!r:.120}; these convert: {known}")


def refuse_unconverted(config: ConfigReader, family: Family) -> None:
    """Raise ConvertError for what changes the computation and has no counterpart in minfer's architectures."""
    if "quantization_config" in config.values:
        method = config.inner("quantization_config").values.get("quant_method")
        raise config.error("quantization_config", f"the weights are quantized ({method!r:.40}); convert the original")
    if (act := config.text("hidden_act", "silu")) not in ("silu", "swish"):
        raise config.error("hidden_act", f"is {act!r:.40}; {family.gguf} in GGUF is silu")
    if config.flag("mlp_bias", False):
        raise config.error("mlp_bias", "biases of the feed-forward network are not converted")
    fault = _window(config) if family.windowed else _asked_window(config)
    if fault is not None:
        raise fault


def _window(config: ConfigReader) -> ConvertError | None:
    """A window of all layers, shorter than the context: an error."""
    if "sliding_window" in config.values and config.values["sliding_window"] is None:
        return None
    window, n_ctx = config.size("sliding_window", WINDOW), config.size("max_position_embeddings")
    message = f"a sliding window of {window} tokens in a context of {n_ctx} is not converted"
    return None if window >= n_ctx else config.error("sliding_window", message)


def _asked_window(config: ConfigReader) -> ConvertError | None:
    """Layers that see only the last tokens of a long text: none, or an error."""
    window = config.values.get("sliding_window")
    if not config.flag("use_sliding_window", False) or window is None:
        return None
    if config.size("sliding_window") >= config.size("max_position_embeddings"):
        return None
    layers = config.values.get("layer_types")
    if layers is None:
        whole = config.size("max_window_layers", 28) >= config.size("num_hidden_layers")
    else:
        whole = isinstance(layers, list) and set(layers) == {"full_attention"}
    return (
        None if whole else config.error("use_sliding_window", f"a sliding window of {window} tokens is not converted")
    )
