"""Qwen2 and Qwen2.5 (Yang et al. 2024; GGUF architecture "qwen2"): also DeepSeek-R1-Distill-Qwen."""

from __future__ import annotations

from minfer_models.arch.base import Architecture


class Qwen2(Architecture):
    """Biases on q, k and v; the halves of a head rotate together."""

    name = "qwen2"
    rope_pairs = "neox"
    qkv_bias = "required"
