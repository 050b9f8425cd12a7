"""Real vocabularies as GGUF metadata, and a small one whose every detail a test can set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from text_samples import read_json, toy_metadata

from minfer_models.gguf import open_gguf
from minfer_models.tokenizer import Tokenizer, metadata_from_hf


@pytest.fixture(scope="session")
def qwen_meta(qwen3_tokenizer: Path) -> dict[str, Any]:
    config = read_json(qwen3_tokenizer / "tokenizer_config.json")
    return metadata_from_hf(read_json(qwen3_tokenizer / "tokenizer.json"), config, "qwen2", n_vocab=151936)


@pytest.fixture(scope="session")
def llama_meta(llama3_1_tokenizer: Path) -> dict[str, Any]:
    config = read_json(llama3_1_tokenizer / "tokenizer_config.json")
    return metadata_from_hf(read_json(llama3_1_tokenizer / "tokenizer.json"), config, "llama-bpe")


@pytest.fixture(scope="session")
def mistral_meta(mistral_tokenizer: Path) -> dict[str, Any]:
    config = read_json(mistral_tokenizer / "tokenizer_config.json")
    return metadata_from_hf(read_json(mistral_tokenizer / "tokenizer.json"), config, "default")


@pytest.fixture(scope="session")
def smol_meta(smollm2: Path) -> dict[str, Any]:
    return dict(open_gguf(smollm2).metadata)


@pytest.fixture(scope="session")
def qwen(qwen_meta: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(qwen_meta)


@pytest.fixture(scope="session")
def llama(llama_meta: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(llama_meta)


@pytest.fixture(scope="session")
def mistral(mistral_meta: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(mistral_meta)


@pytest.fixture(scope="session")
def smol(smol_meta: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(smol_meta)


@pytest.fixture
def toy_meta() -> dict[str, Any]:
    return toy_metadata()
