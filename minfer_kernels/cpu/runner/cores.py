"""How many threads suit this process: physical cores it may run on, within its container's CPU quota."""

from __future__ import annotations

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def default_threads(cpus: Path = _CPUS, cgroup: Path = _CGROUP) -> int:
    """Physical cores within the affinity mask, at most the cgroup's CPU quota, at least 1.

    Hyper-threads share the vector units and add nothing to these kernels.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_core_of(cpu, cpus) for cpu in usable}
    quota = cpu_quota(cgroup)
    return max(1, len(cores) if quota is None else min(len(cores), int(quota)))


def cpu_quota(cgroup: Path = _CGROUP) -> float | None:
    """CPUs that the cgroup (v2, else v1) allows, or None without a limit."""
    v2 = _words(cgroup / "cpu.max")
    if len(v2) == 2:
        return None if v2[0] == "max" else int(v2[0]) / int(v2[1])
    quota, period = _words(cgroup / "cpu/cpu.cfs_quota_us"), _words(cgroup / "cpu/cpu.cfs_period_us")
    if quota and period and int(quota[0]) > 0:
        return int(quota[0]) / int(period[0])
    return None


def _core_of(cpu: int, cpus: Path) -> tuple[str, ...]:
    """What hyper-threads of one core share: package and core id; the CPU itself where the system does not tell."""
    topology = cpus / f"cpu{cpu}" / "topology"
    package, core = _words(topology / "physical_package_id"), _words(topology / "core_id")
    return (*package, *core) if package and core else (f"cpu{cpu}",)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
