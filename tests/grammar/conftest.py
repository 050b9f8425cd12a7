"""Real vocabularies, prepared for grammars once."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_vocabulary import vocabulary

from minfer_models.gguf import open_gguf
from minfer_models.grammar import Vocabulary
from minfer_models.synthetic.vocabulary import hf_vocabulary
from minfer_models.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def byte_tokens() -> Vocabulary:
    return vocabulary(padding=3)


@pytest.fixture(scope="session")
def smollm2_tokens(smollm2: Path) -> Vocabulary:
    with open_gguf(smollm2) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    return Vocabulary(tokenizer, tokenizer.n_vocab)


@pytest.fixture(scope="session")
def qwen3_tokens(qwen3_tokenizer: Path) -> Vocabulary:
    """151,936 rows of logits, 151,669 of them tokens."""
    return Vocabulary(Tokenizer.from_metadata(hf_vocabulary(qwen3_tokenizer, "qwen2", 151_936)), 151_936)


@pytest.fixture(scope="session")
def llama3_1_tokens(llama3_1_tokenizer: Path) -> Vocabulary:
    return Vocabulary(Tokenizer.from_metadata(hf_vocabulary(llama3_1_tokenizer, "llama-bpe")), 128_256)
