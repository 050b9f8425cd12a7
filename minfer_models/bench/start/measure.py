"""Starting processes and taking the time to their first token."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.source import ROOT
from minfer_models.bench.start.report import StartReport, StartRun
from minfer_models.bench.workload import BenchError

PROMPT = "Hi"
PACKAGES = ("minfer_ir", "minfer_kernels", "minfer_models")


def measure(
    path: Path, repetitions: int, cold: bool, options: Sequence[str], show: Callable[[str], None]
) -> StartReport:
    """Start `minfer run` over and over, after a start that doesn't count; `options` are more words for it.

    With `cold` every start has a kernel cache of its own, empty, and none goes before. Raises BenchError, with what it
    said last, for a run that fails.
    """
    conditions = Conditions.here(path)
    _compile_bytecode()
    words = ["run", str(path), "-p", PROMPT, "-n", "1", *options]
    if not cold:
        show("starting once, which doesn't count")
        start_once(words, None)
    runs: list[StartRun] = []
    for number in range(1, repetitions + 1):
        show(f"start {number} of {repetitions}")
        runs.append(_cold_start(words) if cold else start_once(words, None))
    return StartReport(conditions, cold, tuple(runs))


def start_once(words: Sequence[str], cache: Path | None) -> StartRun:
    """One process: `words` behind `minfer`, kernels cached in `cache` (None: where they always are)."""
    elsewhere = [] if cache is None else ["env", f"MINFER_CACHE_DIR={cache}"]
    command = [*elsewhere, sys.executable, "-m", "minfer_models.bench.start.watched_run", *words]
    began = monotonic()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT) as process,
    ):
        assert process.stdout is not None
        text = process.stdout.read(1)
        seconds = monotonic() - began
        process.stdout.read()
        code = process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").splitlines()
    if code or not text:
        last = next((line for line in reversed(said[:-1]) if line.strip()), "it said nothing")
        raise BenchError(f"minfer {' '.join(words)} ended with {code}: {last}")
    return StartRun.of(seconds, began, json.loads(said[-1]))


def _cold_start(words: Sequence[str]) -> StartRun:
    with tempfile.TemporaryDirectory(prefix="minfer-cold-") as cache:
        return start_once(words, Path(cache))


def _compile_bytecode() -> None:
    """As an installation does: a process that compiles its modules anew takes a sixth longer."""
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2)
