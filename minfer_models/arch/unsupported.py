"""Metadata that changes what a model computes and that minfer does not implement: refused, never passed over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minfer_models.gguf import Metadata


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a value's neutrality may depend on."""

    n_ctx_train: int
    head_dim: int
    rope_scaling: str


Neutral = Callable[[Any, Sizes], bool]


def _among(*values: float) -> Neutral:
    return lambda value, _: value in values


def _default_scale(value: Any, sizes: Sizes) -> bool:
    """0 stands for the usual 1 / sqrt(head_dim), which a file may also spell out in float32."""
    return value == 0 or math.isclose(value, sizes.head_dim**-0.5, rel_tol=2**-23)


# Key after the architecture's prefix: (what it asks for, which values ask for nothing). Meanings as in llama.cpp.
UNSUPPORTED: dict[str, tuple[str, Neutral]] = {
    "expert_count": ("a mixture of experts", _among(0)),
    "attention.sliding_window": ("a sliding attention window", lambda v, s: v == 0 or v >= s.n_ctx_train),
    "attention.causal": ("attention to later tokens", _among(1)),
    "attention.scale": ("another scale of the attention scores", _default_scale),
    "attention.clamp_kqv": ("clamped queries, keys and values", _among(0)),
    "attention.max_alibi_bias": ("ALiBi positions", _among(0)),
    "attn_logit_softcapping": ("soft-capped attention scores", _among(0)),
    "final_logit_softcapping": ("soft-capped logits", _among(0)),
    "logit_scale": ("scaled logits", _among(0, 1)),
    "embedding_scale": ("scaled embeddings", _among(0, 1)),
    "residual_scale": ("scaled residuals", _among(0, 1)),
    "rope.scaling.attn_factor": ("scaled rotations without yarn", lambda v, s: v == 1 or s.rope_scaling == "yarn"),
}


def refuse_unsupported(meta: Metadata, arch: str, sizes: Sizes) -> None:
    """Raise GGUFError for the first key of `UNSUPPORTED` whose value is not neutral, naming key and value."""
    for suffix, (meaning, neutral) in UNSUPPORTED.items():
        key = f"{arch}.{suffix}"
        if key in meta and not _is_neutral(meta[key], neutral, sizes):
            raise meta.error(key, f"is {meta[key]!r}: {meaning}, which minfer does not implement for {arch}")


def _is_neutral(value: Any, neutral: Neutral, sizes: Sizes) -> bool:
    """Per-layer arrays are neutral when every element is; text never is."""
    if isinstance(value, np.ndarray):
        return all(neutral(item, sizes) for item in value.tolist())
    return isinstance(value, bool | int | float) and neutral(value, sizes)
