"""Hyper-parameters of config.json as GGUF metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.convert.config import ConfigReader
from minfer_models.convert.families import Family, family_of, refuse_unconverted
from minfer_models.convert.rope import rope_entries


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What the weights' conversion needs to know, and the `metadata` (`llama.block_count`, ...) to write.

    `tied`: config.json says that the head is the embedding table. `rope_factors` is rope_freqs.weight or None.
    """

    family: Family
    n_blocks: int
    width: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    tied: bool
    metadata: dict[str, Any]
    rope_factors: NDArray[np.float32] | None


def read_hyperparameters(config: ConfigReader) -> Hyperparameters:
    """Every size and constant of a model; raises ConvertError naming key and value for what doesn't convert."""
    family = family_of(config)
    refuse_unconverted(config, family)
    width, n_heads = config.size("hidden_size"), config.size("num_attention_heads")
    n_kv_heads = config.size("num_key_value_heads", family.n_kv_heads or n_heads)
    if config.values.get("head_dim") is None and family.head_dim is None and width % n_heads:
        raise config.error("hidden_size", f"is {width}, not a multiple of {n_heads} heads, and no head_dim says")
    head_dim = config.size("head_dim", family.head_dim or width // n_heads)
    rope = rope_entries(config, head_dim)
    n_blocks, n_vocab = config.size("num_hidden_layers"), config.size("vocab_size")
    sizes: dict[str, Any] = {
        "block_count": n_blocks,
        "context_length": config.size("max_position_embeddings"),
        "embedding_length": width,
        "feed_forward_length": config.size("intermediate_size"),
        "attention.head_count": n_heads,
        "attention.head_count_kv": n_kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        "vocab_size": n_vocab,
        **rope.metadata,
    }
    return Hyperparameters(
        family=family,
        n_blocks=n_blocks,
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_vocab=n_vocab,
        tied=config.flag("tie_word_embeddings", False),
        metadata={f"{family.gguf}.{key}": value for key, value in sizes.items()},
        rope_factors=rope.factors,
    )
