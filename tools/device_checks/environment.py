"""Part "environment": where all of this ran, and what the device can do at best."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
import triton

from tools.device_checks.machine import Machine
from tools.device_checks.results import Result, say

PART = "environment"
PACKAGES = ("numpy", "numba", "networkx")


def run(machine: Machine, ceilings: Path) -> None:
    """Says the machine, then its ceilings, which it keeps for the other parts."""
    say(Result(PART, "machine", "info", detail=describe(machine)))
    found = machine.ceilings()
    found.save(ceilings)
    say(
        Result(
            PART, "copy bandwidth, read and write", "info", found.copy / 1e9, "GB/s", _of(found.copy, found.bandwidth)
        )
    )
    say(Result(PART, "float16 matrix rate", "info", found.matrix / 1e12, "TFLOP/s", _of(found.matrix, found.dense)))


def _of(rate: float, sheet: float) -> dict[str, float]:
    return {"datasheet": rate / sheet} if sheet else {}


def describe(machine: Machine) -> str:
    """Device, driver and versions in a line."""
    facts = [f"Python {platform.python_version()}", f"torch {torch.__version__}", f"triton {triton.__version__}"]
    facts += [f"{name} {_version(name)}" for name in PACKAGES]
    if machine.dry:
        return ", ".join(["Triton's interpreter on a CPU", *facts])
    about = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    device = f"{about.name}, sm_{about.major}{about.minor}, {about.multi_processor_count} multiprocessors"
    memory = f"{free / 2**30:.0f} of {total / 2**30:.0f} GiB free"
    return ", ".join([device, memory, f"driver {_driver()}", f"CUDA {torch.version.cuda}", *facts])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
