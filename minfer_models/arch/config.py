"""What a model's metadata says about its shape, checked before anything uses it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minfer_ir.ops.rope import RopeScaling
from minfer_models.arch.unsupported import Sizes, refuse_unsupported
from minfer_models.gguf import Metadata

# What float32 holds with full precision: kernels read these numbers as float32.
SMALLEST, LARGEST = float(np.finfo(np.float32).smallest_normal), float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of a decoder-only transformer.

    `head_dim` is the metadata's key_length where given, else width / n_heads. `rope_dims` of its elements rotate.
    `n_ctx_train` is the context the model was trained for, in tokens.
    """

    arch: str
    n_blocks: int
    width: int
    ffn_width: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    n_ctx_train: int
    norm_eps: float
    rope_dims: int
    rope_base: float
    rope_scaling: RopeScaling

    @property
    def q_width(self) -> int:
        """Elements of a query row: n_heads * head_dim."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of a key or value row: n_kv_heads * head_dim."""
        return self.n_kv_heads * self.head_dim


def read_config(meta: Metadata, arch: str, n_vocab: int) -> ModelConfig:
    """The config of architecture `arch` from metadata keys `{arch}.*`.

    `n_vocab` is the number of rows of the token embedding. Raises GGUFError naming key and value for a missing,
    zero or inconsistent size, a constant that float32 cannot hold, or a feature that is not implemented (see
    `UNSUPPORTED`). A missing head_count_kv means one KV head per query head.
    """
    width, n_heads = _size(meta, f"{arch}.embedding_length"), _size(meta, f"{arch}.attention.head_count")
    n_kv_heads = _size(meta, f"{arch}.attention.head_count_kv", n_heads)
    if n_heads % n_kv_heads:
        key = f"{arch}.attention.head_count_kv"
        raise meta.error(key, f"{n_heads} query heads aren't a multiple of {n_kv_heads} KV heads")
    head_dim, n_ctx_train = _head_dim(meta, arch, width, n_heads), _size(meta, f"{arch}.context_length")
    rope_scaling = _scaling(meta, arch)
    refuse_unsupported(meta, arch, Sizes(n_ctx_train, head_dim, rope_scaling.kind))
    rope_dims = _size(meta, f"{arch}.rope.dimension_count", head_dim)
    if rope_dims % 2 or rope_dims > head_dim:
        raise meta.error(f"{arch}.rope.dimension_count", f"is {rope_dims}, expected an even number up to {head_dim}")
    return ModelConfig(
        arch=arch,
        n_blocks=_size(meta, f"{arch}.block_count"),
        width=width,
        ffn_width=_size(meta, f"{arch}.feed_forward_length"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_vocab=n_vocab,
        n_ctx_train=n_ctx_train,
        norm_eps=_positive(meta, f"{arch}.attention.layer_norm_rms_epsilon"),
        rope_dims=rope_dims,
        rope_base=_positive(meta, f"{arch}.rope.freq_base", 10000.0),
        rope_scaling=rope_scaling,
    )


def _size(meta: Metadata, key: str, default: int | None = None) -> int:
    value = meta.integer(key, default)
    if not 0 < value < 1 << 31:
        raise meta.error(key, f"is {value}, expected a positive count")
    return value


def _positive(meta: Metadata, key: str, default: float | None = None) -> float:
    value = meta.number(key, default)
    if not SMALLEST <= value <= LARGEST:
        raise meta.error(
            key, f"is {value}, expected a positive number within float32 ({SMALLEST:.3g} to {LARGEST:.3g})"
        )
    return value


def _head_dim(meta: Metadata, arch: str, width: int, n_heads: int) -> int:
    key = f"{arch}.attention.key_length"
    if key not in meta and width % n_heads:
        raise meta.error(
            f"{arch}.embedding_length", f"is {width}, not a multiple of {n_heads} heads, and no {key} says"
        )
    head_dim = _size(meta, key, width // n_heads)
    value_dim = _size(meta, f"{arch}.attention.value_length", head_dim)
    if value_dim != head_dim:
        raise meta.error(f"{arch}.attention.value_length", f"is {value_dim}, differing from key_length {head_dim}")
    return head_dim


def _scaling(meta: Metadata, arch: str) -> RopeScaling:
    """The rope scaling that the metadata declares.

    `rope.scale_linear` is the old name of the factor; a factor without a type is a linear one, as in llama.cpp.
    """
    key, factor_key = f"{arch}.rope.scaling.type", f"{arch}.rope.scaling.factor"
    if factor_key not in meta and f"{arch}.rope.scale_linear" in meta:
        factor_key = f"{arch}.rope.scale_linear"
    kind = meta.string(key, "linear" if factor_key in meta else "none")
    if kind == "none":
        return RopeScaling()
    factor = _positive(meta, factor_key, 1.0)
    if kind == "linear":
        return RopeScaling("linear", factor)
    if kind != "yarn":
        raise meta.error(key, f"is {kind!r}; known: none, linear, yarn")
    return RopeScaling(
        "yarn",
        factor,
        original_context=_size(meta, f"{arch}.rope.scaling.original_context_length"),
        beta_fast=_positive(meta, f"{arch}.rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=_positive(meta, f"{arch}.rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=_positive(meta, f"{arch}.rope.scaling.attn_factor", 1.0),
    )
