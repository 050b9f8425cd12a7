"""Converted models, each made once, with transformers' answers beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hf_folders import make_model, write_folder

sys.path.append(str(Path(__file__).resolve().parents[1] / "models"))  # model_steps: forwards of a GGUF file


@pytest.fixture(autouse=True, scope="session")
def unflushed() -> Iterator[None]:
    """Waiting for the disk took most of these tests' time, and none of them asks what a power cut leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minfer_models.gguf.writer.os.fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="session")
def llama_model() -> Any:
    return make_model("llama")


@pytest.fixture
def llama_folder(tmp_path: Path, llama_model: Any) -> Path:
    """A folder that a test may damage."""
    return write_folder(tmp_path / "tiny-llama", llama_model)
