"""Part "op matrix": every variant of every op with a kernel, on the device, against its numpy reference."""

from __future__ import annotations

from collections.abc import Iterable

from minfer_ir.ops import OPS
from minfer_ir.testing.op_matrix import Cell, run_matrix
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.emit import EMITTERS
from tools.device_checks.machine import Machine
from tools.device_checks.results import Result, say

PART = "op matrix"
DRY_OPS = ("add", "scale")


def run(machine: Machine, shard: int, shards: int) -> None:
    """Every `shards`-th op from `shard` on, a result each."""
    backend = GpuBackend(machine.device)
    for op in (DRY_OPS if machine.dry else sorted(EMITTERS))[shard::shards]:
        say(judged(op, run_matrix(backend, [OPS[op]])))


def judged(op: str, cells: Iterable[Cell]) -> Result:
    """One op's cells as one result."""
    found = list(cells)
    failed = [cell for cell in found if cell.verdict == "FAIL"]
    passed = sum(cell.verdict == "PASS" for cell in found)
    detail = f"{passed} pass, {len(found) - passed - len(failed)} refused, {len(failed)} fail"
    if failed:
        detail += f"; first: {failed[0]}"[:600]
    return Result(PART, op, "FAILED" if failed or not passed else "ok", passed, "variants", detail=detail)
