"""`python -m tools.device_checks.child NAME ...`: one part, in a process of its own, saying a result a line.

Whoever starts it sets TRITON_INTERPRET for a dry run: kernels are interpreted or compiled from their import on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.device_checks import environment, invariance, memory, models, op_matrix, peers
from tools.device_checks.bench import Bench, load_types
from tools.device_checks.machine import Ceilings, Machine
from tools.device_checks.shape import QWEN_7B, TOY, Shape
from tools.device_checks.tiny import Recorded

WARM_BLOCKS = 4
"""The first layers of a mix have its richer types, the fourth doesn't: all kernels of a model."""


@dataclass(frozen=True, slots=True)
class Given:
    """The command line: `of` is what the part is about, `seconds` what it may measure for."""

    of: tuple[str, ...]
    machine: Machine
    data: Path
    ceilings_at: Path
    seconds: float

    @property
    def shape(self) -> Shape:
        """The model that is measured."""
        return TOY if self.machine.dry else QWEN_7B

    @property
    def ceilings(self) -> Ceilings:
        """What the first part measured."""
        return Ceilings.load(self.ceilings_at)

    @property
    def few_blocks(self) -> Shape:
        """The same model with the layers that have all of its kernels."""
        return self.shape if self.machine.dry else self.shape.with_blocks(WARM_BLOCKS)

    @property
    def types(self) -> Mapping[str, str]:
        """The matrices' types in the mix that the part is about."""
        (mix,) = self.of
        return load_types(self.data, self.shape, mix)

    def bench(self) -> Bench:
        """The bench of one weight type."""
        return Bench(self.machine, self.shape, self.of[0], self.types, self.ceilings, self.seconds)

    def warm(self) -> None:
        """Compile what it measures; nothing is known of the device yet, and nothing timed."""
        Bench(self.machine, self.few_blocks, self.of[0], self.types, Ceilings(1.0, 1.0), self.seconds).warm()


PARTS: Mapping[str, Callable[[Given], None]] = {
    "environment": lambda given: environment.run(given.machine, given.ceilings_at),
    "op-matrix": lambda given: op_matrix.run(given.machine, *map(int, given.of)),
    "models": lambda given: models.run_models(given.machine, Recorded(given.data), *given.of),
    "capture": lambda given: models.run_capture(given.machine, Recorded(given.data)),
    "memcheck": lambda given: memory.run(given.machine),
    "exercise": lambda given: memory.exercise(given.machine),
    "warm": lambda given: given.warm(),
    "warm-invariance": lambda given: invariance.warm(given.machine, given.few_blocks, given.types),
    "invariance": lambda given: invariance.run(given.machine, given.shape, given.types, given.seconds),
    "bench": lambda given: given.bench().run(),
    "attention": lambda given: peers.run_attention(given.machine, given.shape, given.ceilings),
    "matmul": lambda given: peers.run_matmul(given.machine, given.shape, given.ceilings),
}


def main(arguments: list[str]) -> None:
    """Run the part that the command line names."""
    parser = argparse.ArgumentParser(prog="tools.device_checks.part")
    parser.add_argument("name", choices=PARTS)
    parser.add_argument("of", nargs="*")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--ceilings", type=Path, default=Path("ceilings.json"))
    parser.add_argument("--seconds", type=float, default=60.0)
    said = parser.parse_args(arguments)
    PARTS[said.name](Given(tuple(said.of), Machine(said.dry), said.data, said.ceilings, said.seconds))
