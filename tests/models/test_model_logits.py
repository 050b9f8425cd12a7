"""Whole models against Hugging Face: real and synthetic weights, every architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gates import EXACT, EXCESS, divergence
from model_steps import exact_logits, opened
from oracle import Oracle
from prose import TEXT

from minfer_models.engine import Logits
from minfer_models.synthetic import SyntheticModel, hf_vocabulary, llama3_factors, write_model
from minfer_models.synthetic.reexpress import halves_apart

GATED = slice(128, 640)
"""The 512 positions of SmolLM2 that the gates look at, each with at least 128 tokens of context."""

N_SYNTHETIC = 512
"""Positions of a synthetic model, whose every position is as hard as the next."""

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
K_QUANTS = {"token_embd.weight": "Q4_0", "output.weight": "Q8_0", "*.ffn_down.weight": "Q6_K", "*": "Q4_K"}
SIMPLE = {"output.weight": "Q8_0", "*.attn_v.weight": "Q5_1", "*.ffn_gate.weight": "IQ4_NL", "*": "Q4_1"}
KINDS: dict[str, dict[str, Any]] = {
    "qwen2": {"architecture": "qwen2", "tied": False, "weights": SIMPLE, "rope_base": 1e6},
    "qwen3": {
        "architecture": "qwen3",
        "head_dim": 128,
        "weights": {"token_embd.weight": "Q8_0", "*": "Q5_0"},
        "rope_base": 1e6,
        "norm_eps": 1e-6,
    },
    "deepseek-r1-distill-qwen": {
        "architecture": "qwen2",
        "tied": False,
        "weights": "Q8_0",
        "n_ctx_train": 131072,
    },
    "llama-3.2": {
        "weights": K_QUANTS,
        "tied": False,
        "n_heads": 8,
        "width": 512,
        "rope_base": 500000.0,
        "rope_factors": llama3_factors(64, 500000.0, 32.0),
        "n_ctx_train": 131072,
    },
}


@pytest.fixture(scope="module")
def smollm2_logits(smollm2: Path, smollm2_text: list[int]) -> Logits:
    with opened(smollm2) as llm:
        return llm.logits(smollm2_text)


def test_smollm2_is_within_the_gates(smollm2_reference: Logits, smollm2_logits: Logits) -> None:
    found = divergence(smollm2_reference[GATED], smollm2_logits[GATED])
    print(f"smollm2: {found}")
    assert found.passes(), str(found)


def test_smollm2_is_no_further_than_rounded_activations_explain(
    smollm2_oracle: Oracle, smollm2_text: list[int], smollm2_reference: Logits, smollm2_logits: Logits
) -> None:
    rounded = divergence(smollm2_reference, smollm2_oracle.rounded_logits(smollm2_text))
    found = divergence(smollm2_reference, smollm2_logits)
    print(f"rounded inputs: {rounded}\nours: {found}")
    assert found.kl.mean() < EXCESS * rounded.kl.mean()


def test_smollm2_without_activation_rounding_equals_hugging_face(
    smollm2: Path, smollm2_text: list[int], smollm2_reference: Logits
) -> None:
    n = 96
    found = divergence(smollm2_reference[:n], exact_logits(smollm2, smollm2_text[:n]))
    print(f"smollm2, f32: {found}")
    assert found.largest < EXACT, str(found)


def test_smollm2_as_qwen2_is_within_the_gates(smollm2_qwen2: Path, smollm2_text: list[int]) -> None:
    reference = Oracle(smollm2_qwen2).logits(smollm2_text)
    with opened(smollm2_qwen2) as llm:
        found = divergence(reference[GATED], llm.logits(smollm2_text)[GATED])
    print(f"smollm2 as qwen2: {found}")
    assert found.passes(), str(found)


def test_the_two_expressions_of_smollm2_part_at_the_first_attention(
    smollm2: Path, smollm2_qwen2: Path, smollm2_text: list[int]
) -> None:
    """Up to the scores of block 0 every bit is equal, q and k in another order within a head."""
    seen = {path: first_block(path, smollm2_text[:80]) for path in (smollm2, smollm2_qwen2)}
    ours, theirs = seen[smollm2], seen[smollm2_qwen2]
    for name in ("blk.0.attn_norm", "embedding", "blk.0.attn_v"):
        np.testing.assert_array_equal(bits(ours[name]), bits(theirs[name]), err_msg=name)
    for name, rows in (("blk.0.q_rope", 9), ("blk.0.k_rope", 3)):
        apart = np.stack([halves_apart(row.reshape(rows * 64, 1), rows).reshape(rows, 64) for row in ours[name]])
        np.testing.assert_array_equal(bits(apart), bits(theirs[name]), err_msg=name)
        assert not np.array_equal(ours[name], theirs[name])
    scores = np.abs(ours["blk.0.attention"] - theirs["blk.0.attention"])
    assert scores.max() < 1e-5


def first_block(path: Path, tokens: list[int]) -> dict[str, Any]:
    """Values of the first block's nodes on the CPU's kernels, before any fusion."""
    from minfer_ir.passes.fuse import FUSIONS

    with opened(path, fusions_off=FUSIONS, kv="f32") as llm:
        engine = llm.engine
        n = len(tokens)
        inputs = {
            "token_ids": np.array(tokens, np.int32),
            "positions": np.arange(n, dtype=np.int32),
            "cells": np.arange(n, dtype=np.int32),
            "seq_ids": np.zeros(n, np.int32),
            "window": np.zeros(1, np.int32),
            "n_rows": np.array([n, n], np.int32),
        }
        trace = engine.executable(engine.params(n, None)).trace(inputs)
        seen = {}
        for node, value in trace:
            if node.block not in (None, 0):
                break
            seen[node.name] = value.copy()
    return seen


def bits(values: Any) -> Any:
    """Float32 bit patterns, with -0 as +0: adding a bias of zero turns one into the other."""
    return (values + np.float32(0)).view(np.uint32)


def write_kind(folder: Path, kind: str, vocabulary: dict[str, Any]) -> Path:
    sizes = {"n_blocks": 2, "ffn_width": 768, "vocabulary": vocabulary, "n_ctx_train": 4096} | KINDS[kind]
    return write_model(folder / f"{kind}.gguf", SyntheticModel(**sizes))


@pytest.fixture(scope="module")
def vocabularies(qwen_vocabulary: dict[str, Any], llama3_1_tokenizer: Path) -> Callable[[str], dict[str, Any]]:
    def of(kind: str) -> dict[str, Any]:
        if kind == "llama-3.2":
            return hf_vocabulary(llama3_1_tokenizer, "llama-bpe")
        return qwen_vocabulary | ({"tokenizer.ggml.pre": "deepseek-r1-qwen"} if "deepseek" in kind else {})

    return of


@pytest.mark.parametrize("kind", KINDS)
def test_a_synthetic_model_with_a_real_vocabulary_is_within_the_gates(
    kind: str, models: Path, vocabularies: Callable[[str], dict[str, Any]]
) -> None:
    path = write_kind(models, kind, vocabularies(kind))
    oracle = Oracle(path, rope=LLAMA3_ROPE if kind == "llama-3.2" else None)
    with opened(path, n_ctx=1024) as llm:
        tokens = llm.tokenizer.encode(TEXT)[:N_SYNTHETIC]
        assert len(tokens) == N_SYNTHETIC
        ours = llm.logits(tokens)
    reference = oracle.logits(tokens)
    found = divergence(reference, ours)
    n = 64
    rounded = divergence(reference, oracle.rounded_logits(tokens))
    exact = divergence(reference[:n], exact_logits(path, tokens[:n]))
    print(f"{kind}: {found}\n{kind}, rounded inputs: {rounded}\n{kind}, f32: {exact}")
    path.unlink()
    assert found.passes(), str(found)
    assert found.kl.mean() < EXCESS * rounded.kl.mean()
    assert exact.largest < EXACT, str(exact)
