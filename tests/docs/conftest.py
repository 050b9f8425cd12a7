"""A model that loads in a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of Q4_0 and a byte vocabulary."""
    path = tmp_path_factory.mktemp("models") / "tiny-Q4_0.gguf"
    return write_model(path, SyntheticModel(weights="Q4_0", vocabulary=byte_vocabulary(), n_ctx_train=512))
