"""A model that loads in a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer_models import load
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}>"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of Q4_0, a byte vocabulary and a chat template."""
    path = tmp_path_factory.mktemp("models") / "tiny-Q4_0.gguf"
    vocabulary = {**byte_vocabulary(), "tokenizer.chat_template": TEMPLATE}
    write_model(path, SyntheticModel(weights="Q4_0", vocabulary=vocabulary, n_ctx_train=512))
    with load(path) as llm:  # kernels compile here, not under a test's time limit
        llm.generate("abc", max_tokens=2).text()
    return path
