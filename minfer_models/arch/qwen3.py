"""Qwen3 (Yang et al. 2025; GGUF architecture "qwen3")."""

from __future__ import annotations

from minfer_models.arch.base import Architecture


class Qwen3(Architecture):
    """q and k are normed per head before rope; no biases; the head dim stands in the metadata, apart from the width."""

    name = "qwen3"
    rope_pairs = "neox"
    qk_norm = True
