"""Pieces of a markdown report that all of them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minfer_models.bench.conditions import Conditions, ModelRecord
from minfer_models.bench.machine import Machine
from minfer_models.bench.stats import Ratio

MIB = 2**20
BUSY_CPUS = 0.25
"""CPUs that others may have before a report says so: on two cores, an eighth of the machine."""
KEPT_DEPTH = "- depth: filled once, and cut back to before every run"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up in plain text too: the first to the left, all others to the right."""
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    rule = ["-" * max(widths[0], 3), *("-" * max(w - 1, 2) + ":" for w in widths[1:])]
    widths = [len(r) for r in rule]
    return "\n".join(_line(row, widths) for row in (headers, rule, *rows))


def busy_lines(others: Sequence[tuple[str, float | None]]) -> list[str]:
    """A line that names the tests in which other processes had a good part of a CPU: they weren't alone."""
    busy = [f"{cpus:.1f} CPUs in {test}" for test, cpus in others if cpus is not None and cpus > BUSY_CPUS]
    return [f"- NOT ALONE: other processes had {', '.join(busy)}; take it again on a quiet machine"] if busy else []


def facts(conditions: Conditions) -> list[str]:
    """Model, machine, source and command, as lines of a list."""
    return [
        f"- model: {model_text(conditions.model)}",
        f"- machine: {machine_text(conditions.machine)}",
        f"- source: {source_text(conditions)}",
        f"- command: `{conditions.command}`, {conditions.date}",
    ]


def settings_text(settings: Mapping[str, object]) -> str:
    """`threads 2, kv f16, ...`"""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def ratio_text(ratio: Ratio) -> str:
    """`1.23 [1.20, 1.26]`"""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.median:.3f} [one round]"
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def model_text(model: ModelRecord) -> str:
    """Name, architecture, size, types and checksum."""
    types = ", ".join(f"{name} {100 * size / sum(model.types.values()):.0f} %" for name, size in model.types.items())
    return (
        f"{model.name} ({model.architecture}, {model.parameters / 1e6:.1f} M parameters, {model.bytes / MIB:.1f} MiB: "
        f"{types}; header sha256 {model.header_sha256[:12]})"
    )


def machine_text(machine: Machine) -> str:
    """CPU, features that kernels may use, system, load."""
    memory = "" if machine.memory is None else f", {machine.memory / 2**30:.1f} GiB"
    load = "" if machine.load_average is None else f", load average {machine.load_average:.2f} at the start"
    return (
        f"{machine.cpu} (LLVM {machine.llvm_cpu}; {', '.join(_telling(machine.features)) or 'no vector features'}), "
        f"{machine.cores} cores{memory}, {machine.system}{load}"
    )


def source_text(conditions: Conditions) -> str:
    """Version, commit and packages."""
    versions = conditions.machine.versions
    others = ", ".join(f"{name} {v}" for name, v in versions.items() if name != "minfer")
    return f"minfer {versions['minfer']} at {conditions.source}, Python {conditions.machine.python}, {others}"


TELLING = ("avx2", "fma", "f16c", "avxvnni", "avx512f", "avx512vnni", "amx-int8", "neon", "dotprod", "i8mm", "sve")
"""The features that decide how fast kernels can be; JSON has all of them."""


def _telling(features: Sequence[str]) -> list[str]:
    return [name for name in TELLING if name in features]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = f"{cells[0]:<{widths[0]}}"
    return "| " + " | ".join([first, *(f"{c:>{w}}" for c, w in zip(cells[1:], widths[1:], strict=True))]) + " |"
