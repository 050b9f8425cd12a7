"""A model that loads in a moment, and the command in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from minfer_models import load
from minfer_models.bench.app import app
from minfer_models.bench.report.schema import document_schema
from minfer_models.synthetic import SyntheticModel, byte_vocabulary, write_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of Q4_0, a context of 512 tokens."""
    path = tmp_path_factory.mktemp("models") / "tiny-Q4_0.gguf"
    write_model(path, SyntheticModel(weights="Q4_0", vocabulary=byte_vocabulary(), n_ctx_train=512))
    with load(path) as llm:  # kernels compile here, not under a test's time limit
        llm.generate("abc", max_tokens=2).text()
    return path


@pytest.fixture
def bench() -> Callable[..., Any]:
    """`minfer-bench` with these arguments: its result as typer's test runner has it."""
    return lambda *args: CliRunner().invoke(
        app, [str(a) for a in args], catch_exceptions=False, prog_name="minfer-bench"
    )


@pytest.fixture(scope="session")
def valid() -> Callable[[str], Any]:
    """The document in a JSON report; an assertion when the published schema doesn't allow it."""
    validator = jsonschema.Draft202012Validator(document_schema())
    validator.check_schema(document_schema())

    def parsed(text: str) -> Any:
        document = json.loads(text)
        validator.validate(document)
        return document

    return parsed
