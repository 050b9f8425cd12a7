"""Choices of tiles as data: one table per kernel, whose lines say which devices and operands they are for, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from minfer_kernels.gpu.targets import Target

Tile = TypeVar("Tile")


@dataclass(frozen=True, slots=True)
class Line(Generic[Tile]):
    """One choice: for `targets` (all without any), operands of the types `of` (all without any), sizes `up_to`."""

    tile: Tile
    why: str
    targets: tuple[Target, ...] = ()
    of: tuple[str, ...] = ()
    up_to: int | None = None

    def takes(self, target: Target, operand: str, size: int) -> bool:
        """Whether all three are within what the line is for."""
        here = not self.targets or target in self.targets
        return here and (not self.of or operand in self.of) and (self.up_to is None or size <= self.up_to)


@dataclass(frozen=True, slots=True)
class TileTable(Generic[Tile]):
    """The choices of one kernel, of which the first line that takes a case holds.

    `operand` and `size` say in words what a line's `of` and `up_to` are about.
    """

    kernel: str
    operand: str
    size: str
    lines: tuple[Line[Tile], ...]

    def choose(self, target: Target, operand: str, size: int) -> Tile:
        """The tile for these operands on the device; ValueError where no line takes them."""
        for line in self.lines:
            if line.takes(target, operand, size):
                return line.tile
        raise ValueError(f"{self.kernel}: no tile for {operand} {self.operand} and {size} {self.size} on {target.name}")
