"""What a synthetic model is: sizes, weight types and vocabulary, and the GGUF metadata that states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats import format_named
from minfer_ir.formats.base import Format
from minfer_models.synthetic.vocabulary import byte_vocabulary
from minfer_models.tokenizer.vocab import TOKENS_KEY

WeightTypes = str | Mapping[str, str]
"""One type for every matrix, or types by tensor-name pattern (`fnmatch`), of which the first that matches counts."""


@dataclass(frozen=True)
class SyntheticModel:
    """A decoder-only transformer with random weights; `write_model` writes it.

    architecture: a name in `minfer_models.arch.ARCHITECTURES`.
    head_dim: elements of a head, stated as key_length; None leaves it at width / n_heads, unstated.
    n_kv_heads: None leaves the key out, which means one KV head per query head.
    tied: whether the head is the embedding table, so that the file has no output.weight.
    biases: whether q, k and v have biases; None does what the architecture requires. `bias_std` is their spread.
    weights: types of the matrices (`WeightTypes`); vectors are always F32.
    vocabulary: `tokenizer.*` metadata; the number of its tokens is the number of logits.
    rope_factors: float32 [head_dim / 2], written as rope_freqs.weight.
    metadata: more keys without the architecture's prefix, such as {"rope.scaling.type": "linear"}.
    logit_std: about how far logits spread: 3 leaves a most likely token with a probability of some 20 %.
    seed: the same seed and sizes give the same file.
    """

    architecture: str = "llama"
    n_blocks: int = 2
    width: int = 256
    ffn_width: int = 512
    n_heads: int = 4
    n_kv_heads: int | None = 2
    head_dim: int | None = None
    tied: bool = True
    biases: bool | None = None
    bias_std: float = 0.3
    weights: WeightTypes = "Q8_0"
    vocabulary: Mapping[str, Any] = field(default_factory=byte_vocabulary)
    n_ctx_train: int = 2048
    norm_eps: float = 1e-5
    rope_base: float = 10000.0
    rope_factors: NDArray[np.float32] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    logit_std: float = 3.0
    seed: int = 0

    @property
    def n_vocab(self) -> int:
        """Rows of the embedding table."""
        return len(self.vocabulary[TOKENS_KEY])

    def format_of(self, tensor: str) -> Format:
        """The format of the matrix `tensor`; raises ValueError when no pattern matches or the type is unknown."""
        if isinstance(self.weights, str):
            return format_named(self.weights)
        for pattern, name in self.weights.items():
            if fnmatchcase(tensor, pattern):
                return format_named(name)
        raise ValueError(f"no pattern of weights matches {tensor!r}: {', '.join(self.weights)}")

    def gguf_metadata(self) -> dict[str, Any]:
        """Every key of the file, in order."""
        sizes: dict[str, Any] = {
            "block_count": self.n_blocks,
            "context_length": self.n_ctx_train,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn_width,
            "attention.head_count": self.n_heads,
            "attention.layer_norm_rms_epsilon": self.norm_eps,
            "rope.freq_base": self.rope_base,
        }
        if self.n_kv_heads is not None:
            sizes["attention.head_count_kv"] = self.n_kv_heads
        if self.head_dim is not None:
            sizes |= {"attention.key_length": self.head_dim, "attention.value_length": self.head_dim}
        return {
            "general.architecture": self.architecture,
            "general.name": f"synthetic {self.architecture} {self.n_blocks}x{self.width}",
            **{f"{self.architecture}.{key}": value for key, value in (sizes | dict(self.metadata)).items()},
            **self.vocabulary,
        }
