"""From what was compiled to what is wrong: the gate itself."""

from __future__ import annotations

from collections.abc import Mapping

from minfer_kernels.gpu.configuration import Configuration
from minfer_kernels.gpu.gate.pool import Compiled
from minfer_kernels.gpu.gate.record import Record
from minfer_kernels.gpu.gate.targets import MAIN, TARGETS
from minfer_kernels.gpu.gate.verdict import broken_promises, differences


def jobs_of(
    known: Mapping[str, Configuration], targets: list[str], only: str = "", sampled: bool = False
) -> list[tuple[str, str]]:
    """(target, name) of every configuration whose name has `only` in it, for the targets that it is meant for."""
    names = [one.name for one in known.values() if only in one.name and (one.sampled or not sampled)]
    return [(target, name) for target in targets for name in names]


def complaints(compiled: Compiled, configuration: Configuration, record: Record, triton: str) -> list[str]:
    """Broken promises, and differences from a record made with the same version of Triton."""
    if compiled.figures is None:
        return [compiled.error or "no figures"]
    found = broken_promises(configuration, compiled.figures, TARGETS[compiled.target])
    if record.triton != triton:
        return found
    recorded = record.of(compiled.target, compiled.name)
    if recorded is None:
        return [*found, "not recorded yet"] if compiled.target == MAIN else found
    return found + differences(compiled.figures, recorded)
