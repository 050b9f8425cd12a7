"""Models for conversations."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted import TALKING, write_scripted


@pytest.fixture(scope="session")
def scripted_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file for `scripted.scripted`."""
    return write_scripted(tmp_path_factory.mktemp("models") / "scripted.gguf")


@pytest.fixture(scope="session")
def talking_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a template for several turns."""
    return write_scripted(tmp_path_factory.mktemp("models") / "talking.gguf", TALKING)
