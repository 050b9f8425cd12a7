"""Rotary position embedding: what config.json says of it, as GGUF metadata and a tensor of frequency factors.

`rope_parameters` is the present place (transformers 5), `rope_scaling` and `rope_theta` the old ones. Meanings are
those of transformers' `modeling_rope_utils.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.arch.rope import llama3_factors
from minfer_models.convert.config import ConfigReader

BASE = 10000.0
NEEDS_ORIGINAL = ("llama3", "yarn")


@dataclass(frozen=True, slots=True)
class RopeEntries:
    """Metadata after the architecture's prefix, and rope_freqs.weight where the model has one."""

    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    factors: NDArray[np.float32] | None = None


def rope_entries(config: ConfigReader, head_dim: int) -> RopeEntries:
    """What a model with heads of `head_dim` elements rotates by.

    Raises ConvertError for what GGUF metadata or minfer doesn't express: heads rotated in part, frequencies that change
    with the length of the text (dynamic, longrope) or by layer, yarn without rounding of its range.
    """
    rope = _parameters(config)
    if rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)) != 1.0:
        raise rope.error("partial_rotary_factor", "heads that rotate in part are not converted")
    kind = rope.text("rope_type", rope.text("type", "default"))
    base = rope.number("rope_theta", config.number("rope_theta", BASE))
    metadata: dict[str, Any] = {"rope.freq_base": base, "rope.dimension_count": head_dim}
    if kind == "default":
        return RopeEntries(metadata)
    if kind == "linear":
        metadata |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope.number("factor")}
        return RopeEntries(metadata)
    if kind == "yarn":
        return RopeEntries(metadata | _yarn(rope, config))
    if kind == "llama3":
        return RopeEntries(metadata, _llama3(rope, config, head_dim, base))
    raise rope.error("rope_type", f"is {kind!r}; default, linear, yarn and llama3 are converted")


def _parameters(config: ConfigReader) -> ConfigReader:
    """The object with the scaling, empty where there is none; the old name comes first, as in transformers."""
    for key in ("rope_scaling", "rope_parameters"):
        inner = config.inner(key)
        if inner.values:
            if any(isinstance(value, dict) for value in inner.values.values()):
                raise config.error(key, "differs from layer to layer, which is not converted")
            return inner
    return config.inner("rope_parameters")


def _original(rope: ConfigReader, config: ConfigReader) -> int:
    """The context before it was stretched: the one outside first, at last the whole context, as in transformers."""
    stretched = config.size("max_position_embeddings")
    return config.size("original_max_position_embeddings", rope.size("original_max_position_embeddings", stretched))


def _yarn(rope: ConfigReader, config: ConfigReader) -> dict[str, Any]:
    if not rope.flag("truncate", True):
        raise rope.error("truncate", "yarn over a range that isn't rounded to whole pairs is not converted")
    original = _original(rope, config)
    factor = rope.number("factor", config.size("max_position_embeddings") / original)
    entries: dict[str, Any] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": original,
        "rope.scaling.yarn_beta_fast": rope.number("beta_fast", 32.0),
        "rope.scaling.yarn_beta_slow": rope.number("beta_slow", 1.0),
    }
    # GGUF readers multiply by 1 + 0.1 ln(factor) themselves; only what transformers has beyond that is written.
    beyond = _yarn_amplitude(rope, factor) / (1.0 + 0.1 * math.log(factor))
    if not math.isclose(beyond, 1.0, rel_tol=1e-9):
        entries["rope.scaling.attn_factor"] = beyond
    return entries


def _yarn_amplitude(rope: ConfigReader, factor: float) -> float:
    """What transformers multiplies cosines and sines by."""
    stated = rope.number("attention_factor", 0.0)
    if stated:
        return stated

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    one, all_dims = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    return scale(one) / scale(all_dims) if one and all_dims else scale(1.0)


def _llama3(rope: ConfigReader, config: ConfigReader, head_dim: int, base: float) -> NDArray[np.float32]:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    factor = rope.number("factor")
    if not (factor > 0 and 0 < low < high):
        message = f"factor {factor}, low_freq_factor {low}, high_freq_factor {high}: not positive, or out of order"
        raise rope.error("factor", message)
    return llama3_factors(head_dim, base, factor, _original(rope, config), low, high)
