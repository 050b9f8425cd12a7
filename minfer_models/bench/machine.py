"""What a measurement was taken on: a number without its machine says little."""

from __future__ import annotations

import os
import platform
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from minfer_kernels.cpu.compiler.features import HostFeatures

PACKAGES = ("minfer", "numpy", "numba", "llvmlite")
CPUINFO = Path("/proc/cpuinfo")
STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Machine:
    """CPU, system and versions. `llvm_cpu` and `features` are LLVM's names; `memory` in bytes, None where unknown.

    `load_average` is the system's over the last minute when this was made: well above 0 means that it wasn't alone.
    """

    cpu: str
    llvm_cpu: str
    features: tuple[str, ...]
    cores: int
    memory: int | None
    load_average: float | None
    system: str
    python: str
    versions: dict[str, str]

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        from minfer_kernels.cpu.runner.cores import default_threads

        host = HostFeatures.detect()
        return cls(
            cpu=_cpu_name(),
            llvm_cpu=host.cpu,
            features=tuple(sorted(host.features)),
            cores=default_threads(),
            memory=_memory(),
            load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            versions=_versions(),
        )


def peak_bytes() -> int:
    """The most memory this process has held since `reset_peak`, in bytes (resident, mapped file pages included)."""
    try:
        lines = STATUS.read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # getrusage is the second choice: on Linux it has the peak from before an exec
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def reset_peak() -> None:
    """Let what this process holds now be its peak; where the system has no way to, the peak is that of its life."""
    with suppress(OSError):
        CLEAR_REFS.write_text("5")


def _cpu_name(cpuinfo: Path = CPUINFO) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
