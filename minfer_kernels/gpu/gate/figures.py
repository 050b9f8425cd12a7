"""What is read from one compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of instructions as they stand in the code, not as they run.

    `registers` per thread, `stack` bytes per thread, `spills`: instructions that move registers to memory and back;
    `shared` bytes per program; `threads` per program.

    The rest is about the *loop*: of the innermost loops the one with the most dot product and matrix instructions, of
    these the one with the most global loads, then the longest; all the code where there is no loop. `loop`:
    instructions in it, 0 without one. `loads`: global loads by bits per thread. `dp4a`: four-element integer dot
    products, `tensor`: matrix instructions. `integers`: instructions of the integer units (sums, products, shifts,
    logic, byte permutations, comparisons, selections, dot products, conversions from and to integers; not moves, and
    not those of the uniform path, which run once per warp).

    Padding (NOP) isn't counted. `digest` is of the histogram of all full opcodes, `histogram` counts those up to the
    first point.
    """

    registers: int
    stack: int
    spills: int
    shared: int
    threads: int
    instructions: int
    loop: int
    loads: Mapping[int, int]
    dp4a: int
    tensor: int
    integers: int
    histogram: Mapping[str, int]
    digest: str

    def integers_per(self, weights: int) -> float:
        """Integer instructions per weight, when one turn of the loop of one program reads `weights`."""
        return self.integers * self.threads / weights

    def to_json(self) -> dict[str, Any]:
        """As JSON has it: keys are strings."""
        return asdict(self) | {"loads": {str(bits): n for bits, n in sorted(self.loads.items(), reverse=True)}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Figures:
        """The inverse of `to_json`."""
        return cls(**{**data, "loads": {int(bits): n for bits, n in data["loads"].items()}})
