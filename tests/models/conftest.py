"""Texts, real and synthetic models, and the reference's answers, each made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle import Oracle
from prose import TEXT

from minfer_models.engine import Logits
from minfer_models.gguf import open_gguf
from minfer_models.synthetic import hf_vocabulary, llama_as_qwen2
from minfer_models.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that synthetic models are written to."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def smollm2_text(smollm2: Path) -> list[int]:
    """Real prose in SmolLM2's tokens: more than 512 + 128."""
    with open_gguf(smollm2) as file:
        return Tokenizer.from_metadata(file.metadata).encode(TEXT)


@pytest.fixture(scope="session")
def smollm2_oracle(smollm2: Path) -> Oracle:
    return Oracle(smollm2)


@pytest.fixture(scope="session")
def smollm2_reference(smollm2_oracle: Oracle, smollm2_text: list[int]) -> Logits:
    """The reference's logits over the whole text."""
    return smollm2_oracle.logits(smollm2_text)


@pytest.fixture(scope="session")
def smollm2_qwen2(smollm2: Path, models: Path) -> Path:
    """SmolLM2 re-expressed as qwen2."""
    return llama_as_qwen2(smollm2, models / "smollm2-as-qwen2.gguf")


@pytest.fixture(scope="session")
def qwen_vocabulary(qwen3_tokenizer: Path) -> dict[str, Any]:
    """Qwen's vocabulary as its GGUF files have it: 151936 ids, fewer of them in use."""
    return hf_vocabulary(qwen3_tokenizer, "qwen2", n_vocab=151936)
