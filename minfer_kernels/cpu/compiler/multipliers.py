"""What multiplies and adds fastest on a machine: the instruction, and how much it does."""

from __future__ import annotations

from dataclasses import dataclass

from minfer_kernels.cpu.compiler.features import Machine

CHAINS = 12
"""Independent sums in the loops that measure peaks: more than latency times issue width."""


@dataclass(frozen=True, slots=True)
class Multiplier:
    """`instruction` multiplies vectors of `bits` bits whose lanes have `lane_bits`."""

    instruction: str
    bits: int
    lane_bits: int

    @property
    def macs_per_step(self) -> int:
        """Multiply-adds of one step of the measuring loop."""
        return CHAINS * self.bits // self.lane_bits


def int8_multiplier(machine: Machine) -> Multiplier:
    """Of bytes, summed in 32 bits where one instruction does that, else in 16."""
    if _has(machine, "avx512vnni"):
        return Multiplier("vpdpbusd", 512, 8)
    return Multiplier("vpmaddubsw" if _has(machine, "avx2") else "generic", 256, 8)


def f32_multiplier(machine: Machine) -> Multiplier:
    """Of float32."""
    wide = _has(machine, "avx512f")
    return Multiplier("vfmadd" if wide or _has(machine, "fma") else "generic", 512 if wide else 256, 32)


def _has(machine: Machine, feature: str) -> bool:
    return f"+{feature}" in machine.features.split(",")
