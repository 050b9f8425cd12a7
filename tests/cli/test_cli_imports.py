"""What a warm `minfer run` imports: a start is mostly imports, so each large package must be asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Runs the command as its entry point does, then tells which packages it has imported.
SCRIPT = """
import json, sys
from minfer_models.cli.main import run
sys.argv = ["minfer", *sys.argv[1:]]
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
print("IMPORTED " + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""
NEVER = {
    "numba",
    "torch",
    "networkx",
    "huggingface_hub",
    "transformers",
    "gguf",
    "yaml",
    "triton",
    "asyncio",
    "requests",
}
ONLY_TO_CHAT = {"jinja2", "markupsafe"}


def imported(model: Path, *arguments: str) -> set[str]:
    command = [sys.executable, "-c", SCRIPT, "run", str(model), "-p", "abc", "-n", "2", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("IMPORTED ")]
    return set(json.loads(line.removeprefix("IMPORTED ")))


@pytest.fixture(scope="module")
def modules(tiny: Path) -> set[str]:
    imported(tiny)  # now every kernel is there
    return imported(tiny)


def test_a_warm_run_imports_no_package_that_it_does_not_need(modules: set[str]) -> None:
    assert {"numpy", "llvmlite", "tokenizers", "typer"} <= modules
    assert not modules & (NEVER | ONLY_TO_CHAT)


def test_a_run_without_a_terminal_draws_nothing(modules: set[str]) -> None:
    assert "rich" not in modules
