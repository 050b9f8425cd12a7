"""What a device can do at best, as measured and by its data sheet."""

from __future__ import annotations

from dataclasses import dataclass

from minfer_models.bench.stats import Summary


@dataclass(frozen=True, slots=True)
class Rate:
    """What was measured, round by round, per second; the data sheet's rate, None for a device that isn't listed."""

    measured: Summary
    datasheet: float | None

    @property
    def limit(self) -> float:
        """What results are held against: the data sheet's, or the measured median."""
        return self.measured.median if self.datasheet is None else self.datasheet


@dataclass(frozen=True, slots=True)
class DeviceCeilings:
    """`memory` in bytes per second, read and written ones; `float16` in multiply-adds per second, dense."""

    memory: Rate
    float16: Rate
