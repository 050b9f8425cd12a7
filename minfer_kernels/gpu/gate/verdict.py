"""What is wrong with a kernel's figures: promises that the code doesn't keep, and what differs from the record."""

from __future__ import annotations

from minfer_kernels.gpu.configuration import Configuration
from minfer_kernels.gpu.gate.figures import Figures
from minfer_kernels.gpu.targets import Target

WIDE = 128


def broken_promises(configuration: Configuration, figures: Figures, target: Target) -> list[str]:
    """One line each. What is promised of instructions is NVIDIA's; elsewhere nothing may spill, and all must fit."""
    found: list[str] = []
    if figures.stack or figures.spills:
        found.append(f"spills: {figures.stack} bytes of stack, {figures.spills} loads and stores of registers")
    if figures.shared > target.shared_limit:
        found.append(f"{figures.shared} bytes of shared memory, where {target.name} has {target.shared_limit}")
    if target.backend == "cuda":
        found += _broken_instructions(configuration, figures)
    return found


def _broken_instructions(configuration: Configuration, figures: Figures) -> list[str]:
    promises, where = configuration.promises, "the loop" if figures.loop else "the code"
    found: list[str] = []
    if promises.dp4a and not figures.dp4a:
        found.append(f"no IDP.4A in {where}")
    if promises.wide_loads and not figures.loads.get(WIDE):
        found.append(f"no {WIDE}-bit load in {where}, which has {loads_shown(figures)}")
    if promises.tensor_cores and not figures.tensor:
        found.append(f"no matrix instruction in {where}")
    if promises.integer_ops is not None:
        per_weight = figures.integers_per(promises.weights_per_turn)
        if per_weight > promises.integer_ops:
            found.append(f"{per_weight:.2f} integer instructions per weight, over {promises.integer_ops:g}")
    return found


def differences(figures: Figures, recorded: Figures) -> list[str]:
    """What changed since it was recorded, one line per figure; the histogram where nothing else shows a change."""
    now, then = figures.to_json(), recorded.to_json()
    names = [name for name in now if name not in ("histogram", "digest") and now[name] != then[name]]
    found = [f"{name}: {now[name]}, recorded {then[name]}" for name in names]
    if not found and now["digest"] != then["digest"]:
        found.append(f"instructions: {_changed(now['histogram'], then['histogram'])}")
    return found


def _changed(now: dict[str, int], then: dict[str, int]) -> str:
    opcodes = [opcode for opcode in sorted({*now, *then}) if now.get(opcode) != then.get(opcode)]
    listed = ", ".join(f"{opcode} {now.get(opcode, 0)} (recorded {then.get(opcode, 0)})" for opcode in opcodes)
    return listed or "the same kinds, with other modifiers"


def loads_shown(figures: Figures) -> str:
    """ "4x128 2x32": global loads by width."""
    return " ".join(f"{n}x{bits}" for bits, n in sorted(figures.loads.items(), reverse=True)) or "none"
