"""What a warm `minfer run` imports: a start is mostly imports, so each large package must be asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Runs the command as its entry point does, then tells which packages it has imported.
SCRIPT = """
import json, os, sys, time
from minfer_models.cli.main import run
sys.argv = ["minfer", *sys.argv[1:]]
try:
    run()
except SystemExit as end:
    assert not end.code, end.code
print("IMPORTED " + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
until = time.monotonic() + 20  # the kernel lists a thread for a moment after it was joined
while (threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < until:
    os.sched_yield()
print(f"THREADS {threads}", file=sys.stderr)
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
    "llguidance",
    "requests",
}
ONLY_TO_CHAT = {"jinja2", "markupsafe"}


def said(model: Path, what: str, *arguments: str) -> str:
    command = [sys.executable, "-c", SCRIPT, "run", str(model), "-p", "abc", "-n", "2", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"{what} ")]
    return line.removeprefix(f"{what} ")


def imported(model: Path, *arguments: str) -> set[str]:
    return set(json.loads(said(model, "IMPORTED", *arguments)))


@pytest.fixture(scope="module")
def modules(tiny: Path) -> set[str]:
    imported(tiny)  # now every kernel is there
    return imported(tiny)


def test_a_warm_run_imports_no_package_that_it_does_not_need(modules: set[str]) -> None:
    assert {"numpy", "llvmlite", "tokenizers", "typer"} <= modules
    assert not modules & (NEVER | ONLY_TO_CHAT)


def test_a_run_without_a_terminal_draws_nothing(modules: set[str]) -> None:
    assert "rich" not in modules


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_numpy_starts_no_threads_that_nothing_uses(tiny: Path) -> None:
    """A BLAS that starts them is a twentieth of a start; our own threads have ended with the model."""
    assert said(tiny, "THREADS") == "1"
    assert int(said(tiny, "THREADS", "--device", "numpy")) >= 1
