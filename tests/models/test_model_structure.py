"""What model files vary: heads, biases, head sizes, rope scalings, context limits; each against Hugging Face."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gates import EXACT, KL_MEAN, divergence
from model_steps import exact_logits, opened, step
from oracle import Oracle
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from minfer_ir.ops.rope import RopeAttrs, RopeScaling, rope_frequencies
from minfer_ir.runtime.fill import FillError
from minfer_models.engine import ContextError, EngineError, Logits, Rows, TokenSequence
from minfer_models.gguf import open_gguf
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, llama3_factors, write_model

TOKENS = list(b"It was the best of times, it was the worst of times")
FAR = [*range(25), *range(8200, 8200 + len(TOKENS) - 25)]
"""Positions of TOKENS: a beginning, and a rest that looks back over 8175 positions."""

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def written(folder: Path, **changes: Any) -> Path:
    return write_model(folder / "model.gguf", SyntheticModel(**changes))


def checked(path: Path, positions: Sequence[int] | None = None, rope: dict[str, Any] | None = None) -> Logits:
    """The reference's logits of TOKENS, after ours were found equal: in float32, and on the CPU's kernels."""
    reference = Oracle(path, rope).logits(TOKENS, positions)
    exact = divergence(reference, exact_logits(path, TOKENS, positions))
    assert exact.largest < EXACT, f"without rounding: {exact}"
    found = divergence(reference, on_cpu(path, positions))
    assert found.kl.mean() < KL_MEAN, f"on the CPU: {found}"
    return reference


def on_cpu(path: Path, positions: Sequence[int] | None = None) -> Logits:
    n = len(TOKENS)
    if positions is None:
        with opened(path, n_ctx=n) as llm:
            return llm.logits(TOKENS)
    with opened(path, n_ctx=max(positions) + 1) as llm:
        spans = np.stack([np.zeros(n), np.arange(1, n + 1)], axis=1)
        return step(llm, "span", TOKENS, positions, range(n), spans)


def differ(a: Logits, b: Logits) -> bool:
    """Whether two of the reference's models disagree far beyond rounding: a control for the tests of equality."""
    return divergence(a, b).largest > 50 * EXACT


def test_llama3_factors_keep_short_wavelengths_and_stretch_long_ones() -> None:
    attrs = RopeAttrs("interleaved", dims=64, base=500000.0, max_positions=8192)
    plain, _ = rope_frequencies(attrs)
    scaled, amplitude = rope_frequencies(attrs, llama3_factors(64, 500000.0, 32.0))
    ratio = plain / scaled
    assert amplitude == 1.0
    np.testing.assert_array_equal(ratio[:15], 1.0)
    assert ((ratio[15:18] > 1.0) & (ratio[15:18] < 32.0)).all()
    np.testing.assert_allclose(ratio[18:], 32.0, rtol=1e-6)
    config = LlamaConfig(head_dim=64, rope_parameters=LLAMA3, max_position_embeddings=131072)
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
    np.testing.assert_allclose(scaled, expected.numpy(), rtol=1e-6)
    as_attrs = RopeAttrs("neox", 64, 500000.0, 8192, RopeScaling("llama3", 32.0, 8192))
    np.testing.assert_allclose(rope_frequencies(as_attrs)[0], expected.numpy(), rtol=1e-6)


def test_rope_factors_of_a_file_count_beyond_position_8192(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"rope_base": 500000.0, "n_ctx_train": 131072}
    scaled = checked(written(tmp_path, rope_factors=llama3_factors(64, 500000.0, 32.0), **sizes), FAR, LLAMA3)
    plain = checked(written(tmp_path, **sizes), FAR)
    assert differ(plain, scaled)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_rope_scaling_of_the_metadata(kind: str, architecture: str, tmp_path: Path) -> None:
    scaling = {"rope.scaling.type": kind, "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 2048}
    sizes: dict[str, Any] = {"architecture": architecture, "n_ctx_train": 16384}
    scaled = checked(written(tmp_path, metadata=scaling, **sizes), FAR)
    plain = checked(written(tmp_path, **sizes), FAR)
    assert differ(plain, scaled)


@pytest.mark.parametrize("embedding", ["F16", "Q8_0", "Q6_K", "Q4_0"])
def test_a_tied_head_is_the_embedding(embedding: str, tmp_path: Path) -> None:
    checked(written(tmp_path, weights={"token_embd.weight": embedding, "*": "Q8_0"}))


def test_a_file_with_a_head_of_its_own_uses_it(tmp_path: Path) -> None:
    untied = checked(written(tmp_path, tied=False))
    tied = checked(written(tmp_path, tied=True))
    assert differ(tied, untied)


def test_the_epsilon_of_every_norm_comes_from_the_metadata(tmp_path: Path) -> None:
    small, large = (checked(written(tmp_path, architecture="qwen3", norm_eps=eps)) for eps in (1e-6, 0.3))
    assert differ(small, large)


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_biases_of_q_k_and_v_are_added(architecture: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"architecture": architecture, "biases": True}
    none, usual, tenfold = (checked(written(tmp_path, bias_std=std, **sizes)) for std in (0.0, 0.3, 3.0))
    assert differ(none, usual)
    assert differ(usual, tenfold)


def test_qwen3_heads_have_the_size_that_key_length_says(tmp_path: Path) -> None:
    path = written(tmp_path, architecture="qwen3", width=64, ffn_width=128, n_heads=4, n_kv_heads=2, head_dim=32)
    with open_gguf(path) as file:
        assert file.tensor("blk.0.attn_q.weight").shape == (128, 64)
        assert file.tensor("blk.0.attn_k_norm.weight").shape == (32,)
    with opened(path) as llm:
        assert llm.engine.model.config.head_dim == 32
    checked(path)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_missing_head_count_kv_means_a_kv_head_per_query_head(architecture: str, tmp_path: Path) -> None:
    path = written(tmp_path, architecture=architecture, n_kv_heads=None)
    with open_gguf(path) as file:
        assert f"{architecture}.attention.head_count_kv" not in file.metadata
    checked(path)


@pytest.mark.parametrize("heads", [(1, 1, 64), (3, 1, 80), (7, 7, 48), (6, 2, 100)])
def test_awkward_numbers_and_sizes_of_heads(heads: tuple[int, int, int], tmp_path: Path) -> None:
    n_heads, n_kv_heads, head_dim = heads
    checked(
        written(
            tmp_path,
            architecture="qwen3",
            width=96,
            ffn_width=160,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            weights={"*.attn_output.weight": "F16", "*": "Q8_0"},
            vocabulary=byte_vocabulary(263),
        )
    )


def test_the_last_position_of_the_context_works_and_the_next_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    reference = Oracle(path).logits(TOKENS)
    n = len(TOKENS)
    with opened(path, n_ctx=n) as llm:
        whole = llm.logits(TOKENS)
        assert divergence(reference, whole).kl.mean() < KL_MEAN
        with TokenSequence(llm.engine) as sequence:
            sequence.feed(TOKENS[:-1])
            np.testing.assert_array_equal(sequence.feed(TOKENS[-1:]), whole[-1:])
            with pytest.raises(ContextError, match=f"{n + 1} tokens exceed the available context size of {n}"):
                sequence.feed([0])


def test_a_step_is_guarded_before_it_runs(tmp_path: Path) -> None:
    with opened(written(tmp_path), n_ctx=40) as llm:
        before = step(llm, "causal", [1, 2], [0, 1], [0, 1], [0])
        for message, tokens, positions, cells in (
            (r"positions\[1\] is 40, not below n_ctx 40", [1, 2], [39, 40], [0, 1]),
            (r"cells\[0\] is 40, not below the KV arena of 40 cells", [1, 2], [0, 1], [40, 1]),
            (r"token_ids\[1\] is \d+, not below the vocabulary of \d+", [1, 10**6], [0, 1], [0, 1]),
            (r"positions\[0\] is -1", [1, 2], [-1, 0], [0, 1]),
        ):
            with pytest.raises(FillError, match=message):
                step(llm, "causal", tokens, positions, cells, [0])
        np.testing.assert_array_equal(step(llm, "causal", [1, 2], [0, 1], [0, 1], [0]), before)


def test_a_context_beyond_the_models_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="n_ctx is 2049, the model takes 1 to 2048"):
        opened(written(tmp_path), n_ctx=2049)


def test_rows_of_a_sequence_must_follow_what_is_written(tmp_path: Path) -> None:
    with opened(written(tmp_path), n_ctx=40) as llm, TokenSequence(llm.engine) as sequence:
        sequence.feed([1, 2, 3])
        with pytest.raises(ValueError, match="position 3 isn't written, but 5 would read it"):
            llm.engine.forward(Rows.of(sequence.id, [4], 5), "last")
