"""What a measurement was taken on: a number without its machine says little."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from minfer_kernels.cpu.compiler.features import HostFeatures


@dataclass(frozen=True, slots=True)
class Machine:
    """CPU, system and versions at the time of measuring. `commit` is None outside of a git checkout."""

    cpu: str
    llvm_cpu: str
    cores: int
    system: str
    python: str
    minfer: str
    commit: str | None
    date: str

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        return cls(
            cpu=_cpu_name(),
            llvm_cpu=HostFeatures.detect().cpu,
            cores=_cores(),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            minfer=version("minfer"),
            commit=_commit(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def peak_bytes() -> int:
    """The most memory this process has held so far, in bytes (resident, mapped file pages included)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _cores() -> int:
    from minfer_kernels.cpu.runner.cores import default_threads

    return default_threads()


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str | None:
    """The checkout's commit, with a + when files differ from it."""
    here = Path(__file__).parent
    try:
        command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None
