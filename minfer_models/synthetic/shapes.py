"""Shapes of published models by name, for synthetic models that stand in for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minfer_models.arch.rope import llama3_factors
from minfer_models.synthetic.mixes import types_by_tensor
from minfer_models.synthetic.model import SyntheticModel


@dataclass(frozen=True, slots=True)
class NamedShape:
    """Sizes of a published model, from its config.json. `tokenizer` names its vocabulary in `tools.testdata`.

    rope_factor: what Llama 3's context scaling divides low frequencies by, 1 without it.
    """

    architecture: str
    n_blocks: int
    width: int
    ffn_width: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    n_ctx_train: int
    norm_eps: float
    rope_base: float
    tokenizer: str
    pre: str
    rope_factor: float = 1.0
    tied: bool = True

    def model(
        self, type_name: str, vocabulary: Mapping[str, Any], n_blocks: int | None = None, seed: int = 0
    ) -> SyntheticModel:
        """A model of this shape in `type_name`, a format or a mix; `n_blocks` cuts it or makes it deeper.

        Raises ValueError for an unknown type, for rows that aren't whole blocks of it, and for no blocks.
        """
        blocks = self.n_blocks if n_blocks is None else n_blocks
        if blocks < 1:
            raise ValueError(f"a model has at least 1 block, asked for {blocks}")
        factors = None
        if self.rope_factor != 1:
            factors = llama3_factors(self.head_dim, self.rope_base, self.rope_factor)
        return SyntheticModel(
            architecture=self.architecture,
            n_blocks=blocks,
            width=self.width,
            ffn_width=self.ffn_width,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            tied=self.tied,
            weights=types_by_tensor(type_name, self._rows(), blocks, self.tied),
            vocabulary=vocabulary,
            n_ctx_train=self.n_ctx_train,
            norm_eps=self.norm_eps,
            rope_base=self.rope_base,
            rope_factors=factors,
            seed=seed,
        )

    def _rows(self) -> dict[str, int]:
        """Elements of a row, by kind of matrix."""
        normed = ("token_embd", "attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")
        return {
            **dict.fromkeys(normed, self.width),
            "attn_output": self.n_heads * self.head_dim,
            "ffn_down": self.ffn_width,
        }


SHAPES = {
    "qwen2.5-0.5b": NamedShape(
        architecture="qwen2",
        n_blocks=24,
        width=896,
        ffn_width=4864,
        n_heads=14,
        n_kv_heads=2,
        head_dim=64,
        n_vocab=151936,
        n_ctx_train=32768,
        norm_eps=1e-6,
        rope_base=1e6,
        tokenizer="qwen3-tokenizer",
        pre="qwen2",
    ),
    "qwen3-0.6b": NamedShape(
        architecture="qwen3",
        n_blocks=28,
        width=1024,
        ffn_width=3072,
        n_heads=16,
        n_kv_heads=8,
        head_dim=128,
        n_vocab=151936,
        n_ctx_train=40960,
        norm_eps=1e-6,
        rope_base=1e6,
        tokenizer="qwen3-tokenizer",
        pre="qwen2",
    ),
    "llama-3.2-1b": NamedShape(
        architecture="llama",
        n_blocks=16,
        width=2048,
        ffn_width=8192,
        n_heads=32,
        n_kv_heads=8,
        head_dim=64,
        n_vocab=128256,
        n_ctx_train=131072,
        norm_eps=1e-5,
        rope_base=5e5,
        tokenizer="llama3_1-tokenizer",
        pre="llama-bpe",
        rope_factor=32.0,
    ),
}
"""Qwen2.5 and Qwen3 share one byte-level vocabulary, apart from ids that Qwen3 added for tools and thinking."""
