"""A bench run as markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minfer_models.bench.machine import Machine
from minfer_models.bench.throughput import Measurement


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a reader needs to repeat the numbers. Sizes in bytes, times in seconds."""

    model: str
    file_bytes: int
    settings: dict[str, Any]
    machine: Machine
    load_seconds: float
    peak_bytes: int
    measurements: Sequence[Measurement]

    def to_json(self) -> str:
        """One JSON object."""
        rows = [
            asdict(m) | {"rates": m.rates, "median_rate": m.median_rate, "spread": m.spread} for m in self.measurements
        ]
        return json.dumps(asdict(self) | {"measurements": rows}, indent=2)

    def to_markdown(self) -> str:
        """A table of the tests, with the machine and the settings below."""
        lines = [
            "| test | tokens/s (median) | spread | outside the programs |",
            "|---|---:|---:|---:|",
            *(
                f"| {m.name} | {m.median_rate:.2f} | {m.spread:.2f} | {100 * m.outside:.1f} % |"
                for m in self.measurements
            ),
            "",
            f"- model: {self.model}, {self.file_bytes / 2**20:.1f} MiB; loaded in {self.load_seconds:.2f} s; "
            f"peak memory {self.peak_bytes / 2**20:.0f} MiB ({self.peak_bytes / self.file_bytes:.2f} x the file)",
            f"- settings: {', '.join(f'{k} {v}' for k, v in self.settings.items())}",
            f"- machine: {self.machine.cpu} ({self.machine.llvm_cpu}, {self.machine.cores} cores), "
            f"{self.machine.system}",
            f"- minfer {self.machine.minfer} at {self.machine.commit or 'no commit'}, Python {self.machine.python}, "
            f"{self.machine.date}",
        ]
        return "\n".join(lines)
