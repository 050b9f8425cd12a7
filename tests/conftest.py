"""Options and data that every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools import testdata

# GPU kernels run in Triton's interpreter here, which is chosen before anything of Triton is imported.
os.environ["TRITON_INTERPRET"] = "1"

# A busy machine must not fail a test, so nothing is bounded by time. The suite draws the same examples every run; the
# long sweeps draw new ones.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("full", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the long sweeps (tests marked `full`)")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("full" if config.getoption("--full") else "suite")


def pytest_report_header(config: pytest.Config) -> str:
    if config.getoption("--full"):
        return "full: on, the long sweeps run too"
    return "full: off, tests marked `full` are left out (tools/test --full runs them)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    long = [item for item in items if item.get_closest_marker("full")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.fixture(autouse=True, scope="session")
def all_threads() -> Iterator[None]:
    """A busy machine must not change what a test runs: engines walk with all the threads that they were given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minfer_models.backends.free_cores", lambda _most: None)
        yield


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct Q4_1, a real GGUF model file."""
    return testdata.path("smollm2-q4_1.gguf")


@pytest.fixture(scope="session")
def qwen3_tokenizer() -> Path:
    """The folder with Qwen3's tokenizer.json and tokenizer_config.json."""
    return testdata.path("qwen3-tokenizer")


@pytest.fixture(scope="session")
def llama3_1_tokenizer() -> Path:
    """The folder with Llama 3.1's tokenizer.json and tokenizer_config.json."""
    return testdata.path("llama3_1-tokenizer")


@pytest.fixture(scope="session")
def mistral_tokenizer() -> Path:
    """The folder with Mistral 7B's tokenizer.json and tokenizer_config.json: a SentencePiece vocabulary."""
    return testdata.path("mistral-tokenizer")
