"""A real llama file as a qwen2 file: real weights for an architecture that no small file ships."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from minfer_ir.formats.base import Bytes
from minfer_models.arch import architecture_of
from minfer_models.arch.config import ModelConfig, read_config
from minfer_models.arch.tensors import vocabulary_rows
from minfer_models.gguf import (
    GGUFError,
    GGUFFile,
    TensorSource,
    TypedValue,
    array_source,
    file_source,
    open_gguf,
    write_gguf,
)


def llama_as_qwen2(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Write the llama model `source` as a qwen2 model with the same weights; returns `target`.

    GGUF stores the rows of llama's q and k permuted, so that the elements that rotate together lie side by side;
    qwen2 rotates the halves of a head. The permutation is undone on whole quantized rows, so no weight changes. Biases
    of zero are added, and the keys `llama.*` become `qwen2.*`.

    Both files describe the same function, and not the same bits: the elements of q and k stand in another order within
    a head, so a kernel adds the products of a score q . k in another order. Everything before the scores (normed
    rows, projections, rotated pairs, stored values) is equal bit for bit, apart from that order and the sign of
    zeros; from block 0's attention on, results differ by the rounding of float32 sums.

    Raises GGUFError when `source` isn't a llama model that rotates whole heads, or brings biases or frequency factors.
    """
    with open_gguf(source) as file:
        arch = architecture_of(file.metadata)
        if arch.name != "llama":
            raise file.metadata.error("general.architecture", f"is {arch.name!r}, expected 'llama'")
        config = read_config(file.metadata, "llama", vocabulary_rows(file))
        if config.rope_dims != config.head_dim:
            raise file.metadata.error("llama.rope.dimension_count", f"is {config.rope_dims}, expected whole heads")
        return write_gguf(target, _metadata(file), _tensors(file, config))[0]


def _metadata(file: GGUFFile) -> Iterator[tuple[str, TypedValue | str]]:
    for key, value in file.metadata.typed_items():
        if key == "general.architecture":
            yield key, "qwen2"
        else:
            yield f"qwen2.{key.removeprefix('llama.')}" if key.startswith("llama.") else key, value


def _tensors(file: GGUFFile, c: ModelConfig) -> Iterator[TensorSource]:
    heads = {"attn_q": c.n_heads, "attn_k": c.n_kv_heads, "attn_v": c.n_kv_heads}
    for name, info in file.tensors.items():
        if name.endswith(".bias") or name == "rope_freqs.weight":
            raise GGUFError("has no place in the re-expression", path=info.path, tensor=name)
        kind = name.split(".")[-2]
        if kind in ("attn_q", "attn_k"):
            yield array_source(name, halves_apart(file.rows(name), heads[kind]), info.ggml_type, info.shape)
        else:
            yield file_source(file, name)
        if kind in heads:
            yield array_source(name.replace(".weight", ".bias"), np.zeros(info.shape[0], np.float32))


def halves_apart(rows: Bytes, n_heads: int) -> Bytes:
    """Rows `[n_heads * head_dim, ...]` with each head's even elements first, then its odd ones."""
    pairs = rows.reshape(n_heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
