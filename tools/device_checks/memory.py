"""Part "memcheck": attention and KV kernels under compute-sanitizer, where that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import islice

from minfer_ir.ops import OPS
from minfer_ir.testing.op_matrix import run_variant
from minfer_ir.testing.variants import Variant, variants
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.emit import EMITTERS
from tools.device_checks.machine import Machine
from tools.device_checks.results import Result, say

PART = "memcheck"
PER_OP = 24
"""Variants of one op: under the sanitizer each takes tens of milliseconds."""
FOUND = 9
"""The exit status that says that the sanitizer has found something."""


def run(machine: Machine) -> None:
    """Runs `exercise` in a process under the sanitizer."""
    sanitizer = shutil.which("compute-sanitizer")
    if machine.dry or sanitizer is None:
        say(Result(PART, "attention and KV kernels", "info", detail="left out: no compute-sanitizer here"))
        return
    command = [sanitizer, "--tool", "memcheck", "--error-exitcode", str(FOUND)]
    command += [sys.executable, "-m", "tools.device_checks.child", "exercise"]
    # torch's own allocator would put an overrun into a neighbour that the sanitizer takes for the same allocation
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    summary = next((line for line in reversed(said) if "ERROR SUMMARY" in line), "no summary")
    first = next((line for line in said if "Invalid" in line or "Error:" in line), "")
    detail = f"{summary.strip('= ')} (status {done.returncode}) {first}".strip()
    say(Result(PART, "attention and KV kernels", "ok" if done.returncode == 0 else "FAILED", detail=detail))


def exercise(machine: Machine) -> None:
    """The first variants of every op that touches cells; raises when one fails."""
    backend = GpuBackend(machine.device)
    for op in sorted(name for name in EMITTERS if "attention" in name or "kv_store" in name):
        for variant in islice(_runnable(backend, op), PER_OP):
            cell = run_variant(backend, variant)
            if cell.verdict == "FAIL":
                raise AssertionError(str(cell))


def _runnable(backend: GpuBackend, op: str) -> list[Variant]:
    return [v for v in variants(OPS[op]) if backend.supports(op, v.attrs, v.out, v.operands) is None]
