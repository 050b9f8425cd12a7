"""Logits wider than the vocabulary: ids without text are never chosen, whatever the logits and a grammar say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from minfer_models import load
from minfer_models.sampling import Sampler, SamplingParams
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model
from minfer_models.synthetic.scripted import ScriptedBackend
from minfer_models.tokenizer import Tokenizer

QWEN_LOGITS, QWEN_IDS = 151936, 151669
SETTINGS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=5, top_k=0, top_p=1, min_p=0, seed=4),
    SamplingParams(temperature=1, top_k=40, seed=4),
]


class AllOf:
    """A grammar that lets every id of the logits come, also those past the vocabulary; `free`: it isn't asked yet."""

    finished = False

    def __init__(self, n: int, free: bool) -> None:
        self._mask = None if free else np.full(-(-n // 32), 0xFFFFFFFF, np.uint32)
        self.accepted: list[int] = []

    def mask(self) -> np.ndarray | None:
        return self._mask

    def accept(self, token_id: int) -> None:
        self.accepted.append(token_id)


@pytest.mark.parametrize("guided", ["not", "by a grammar", "by a grammar that waits for the thinking to end"])
@pytest.mark.parametrize("params", SETTINGS)
def test_padded_ids_of_qwen3_are_never_sampled(qwen: Tokenizer, params: SamplingParams, guided: str) -> None:
    assert qwen.decodable == QWEN_IDS
    constraint = None if guided == "not" else AllOf(QWEN_LOGITS, free="waits" in guided)
    sampler = Sampler(params, QWEN_LOGITS, qwen.decodable, constraint=constraint)
    logits = np.zeros(QWEN_LOGITS, np.float32)
    logits[QWEN_IDS:] = 50.0
    logits[QWEN_LOGITS - 1] = 1e30
    chosen = [sampler.sample(logits) for _ in range(20)]
    assert max(chosen) < QWEN_IDS
    assert constraint is None or constraint.accepted == chosen
    assert all(qwen.token_bytes(i) for i in chosen)


def test_a_grammar_that_lets_only_padded_ids_is_an_error(qwen: Tokenizer) -> None:
    constraint = AllOf(QWEN_LOGITS, free=False)
    mask = constraint.mask()
    assert mask is not None
    mask[: QWEN_IDS // 32] = 0
    mask[QWEN_IDS // 32] &= np.uint32(0xFFFFFFFF << QWEN_IDS % 32 & 0xFFFFFFFF)
    sampler = Sampler(SETTINGS[0], QWEN_LOGITS, qwen.decodable, constraint=constraint)
    with pytest.raises(ValueError, match="the constraint allows none"):
        sampler.sample(np.zeros(QWEN_LOGITS, np.float32))


def test_a_model_that_wants_a_padded_id_says_something_else(tmp_path: Path) -> None:
    path = tmp_path / "padded.gguf"
    write_model(path, SyntheticModel(weights="F32", vocabulary=byte_vocabulary(n_vocab=300), n_ctx_train=128))

    def padded(history: Sequence[int]) -> int:
        return 299

    with load(path, backends=[ScriptedBackend(padded)]) as llm:
        for settings in ({"temperature": 0.0}, {"temperature": 1.0, "seed": 3}):
            generation = llm.generate("a", max_tokens=8, **settings)
            assert generation.text().encode() == b"".join(map(llm.tokenizer.token_bytes, generation.token_ids))
            assert max(generation.token_ids) < llm.tokenizer.decodable == 258


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 3}, {"logit_bias": {ord("b"): 50.0}}])
def test_an_unused_id_between_others_is_never_said(tmp_path: Path, settings: dict[str, object]) -> None:
    vocabulary = byte_vocabulary()
    vocabulary["tokenizer.ggml.token_type"][ord("b")] = 5
    path = tmp_path / "gap.gguf"
    write_model(path, SyntheticModel(weights="F32", vocabulary=vocabulary, n_ctx_train=128))
    with load(path, backends=[ScriptedBackend(lambda history: ord("b"))]) as llm:
        assert llm.tokenizer.gaps == (ord("b"),)
        generation = llm.generate("a", max_tokens=8, **settings)  # type: ignore[arg-type]
        generation.text()
        assert generation.token_ids
        assert ord("b") not in generation.token_ids


@pytest.mark.parametrize("named", ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"])
def test_generation_stops_at_an_end_that_the_metadata_does_not_name(tmp_path: Path, named: str) -> None:
    """The file names <|endoftext|> only; the model ends its turn with <|im_end|>."""
    vocabulary = byte_vocabulary(n_vocab=260)
    vocabulary["tokenizer.ggml.tokens"][258] = "<|im_end|>"
    vocabulary["tokenizer.ggml.token_type"][258] = 3
    del vocabulary["tokenizer.ggml.eos_token_id"]
    path = tmp_path / "ends.gguf"
    write_model(path, SyntheticModel(weights="F32", vocabulary={**vocabulary, named: 256}, n_ctx_train=128))
    for end in (256, 258):
        with load(
            path, backends=[ScriptedBackend(lambda history, end=end: ord("x") if len(history) < 4 else end)]
        ) as llm:
            generation = llm.generate("ab", max_tokens=20)
            assert generation.text() == "xx"
            assert generation.finish_reason == "stop"


def test_a_width_below_the_vocabulary_is_all_decodable(qwen: Tokenizer) -> None:
    assert qwen.decodable_mask(100).all()
    assert math.isclose(qwen.decodable_mask(QWEN_LOGITS).sum(), QWEN_IDS)
