"""From what was compiled to what is wrong: the gate itself."""

from __future__ import annotations

from collections.abc import Iterable

from minfer_kernels.gpu.configuration import Configuration, Inventory
from minfer_kernels.gpu.gate.pool import Compiled
from minfer_kernels.gpu.gate.record import Record
from minfer_kernels.gpu.gate.verdict import broken_promises, differences
from minfer_kernels.gpu.targets import TARGETS


def jobs_of(known: Inventory, targets: Iterable[str], only: str = "", sampled: bool = False) -> list[tuple[str, str]]:
    """(target, name) of every configuration whose name has `only` in it; of the `sampled` ones alone where asked."""
    return [
        (target, one.name)
        for target in targets
        for one in known[target].values()
        if only in one.name and (one.sampled or not sampled)
    ]


def complaints(compiled: Compiled, configuration: Configuration, record: Record, triton: str) -> list[str]:
    """Broken promises, and differences from a record made with the same version of Triton."""
    if compiled.figures is None:
        return [compiled.error or "no figures"]
    found = broken_promises(configuration, compiled.figures, TARGETS[compiled.target])
    if record.triton != triton:
        return found
    recorded = record.of(compiled.target, compiled.name)
    if recorded is None:
        return [*found, "not recorded yet"]
    return found + differences(compiled.figures, recorded)


def recorded_complaints(known: Inventory, record: Record) -> list[str]:
    """What is wrong with the record itself: promises that its figures break, configurations that it lacks or keeps."""
    found: list[str] = []
    for target, by_name in known.items():
        recorded = record.figures.get(target, {})
        for name, one in by_name.items():
            lines = broken_promises(one, recorded[name], TARGETS[target]) if name in recorded else ["not recorded"]
            found += [f"{name} for {target}: {line}" for line in lines]
        found += [f"{name} for {target}: recorded, but no module declares it" for name in recorded.keys() - by_name]
    return found
