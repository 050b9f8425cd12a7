"""Llama (Touvron et al. 2023; GGUF architecture "llama"): also SmolLM2, Mistral and Llama 3.

GGUF stores q and k with rows permuted so that the pairs that rotate together stand side by side. Llama 3.1 and
later bring their context scaling as a tensor of frequency factors.
"""

from __future__ import annotations

from minfer_models.arch.base import Architecture


class Llama(Architecture):
    """Interleaved rope; projections may have biases."""

    name = "llama"
    rope_pairs = "interleaved"
    qkv_bias = "optional"
