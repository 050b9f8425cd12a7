"""Tile sizes of the attention kernels: constants by cell type, shape and device, never measured while running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Finish = Literal["kernel", "last"]


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """Of `split`: positions of a part and of a block, and whether packed keys meet the query in matrix products.

    `split` decides the order of sums, so it is the same for all shapes on all devices.
    """

    split: int = 128
    block: int = 64
    matrix: bool = True
    warps: int = 4
    stages: int = 2


@dataclass(frozen=True, slots=True)
class FlashChoice:
    """Of `flash`: rows of a tile, positions of a block."""

    tile: int = 128
    block: int = 64
    warps: int = 8
    stages: int = 2


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """How a backend attends.

    Up to `split_rows` rows take the split kernel, more the flash kernel. `decode_rows_apart`: rows of a sequence with
    at most `split_rows` rows in the step take the split kernel whatever rides beside them, and get the bits they have
    alone.
    `finish`: who merges the parts, a launch of its own or the program that ends the last part (unset: the latter up to
    `finish_parts` parts); the bits are the same. `partial_bytes`: memory for parts, which bounds how
    many rows one launch takes. `split`, `flash`: unset, as the device and the shapes have it.
    """

    decode_rows_apart: bool = False
    split_rows: int = 16
    finish: Finish | None = None
    finish_parts: int = 32
    partial_bytes: int = 256 << 20
    split: SplitChoice | None = None
    flash: FlashChoice | None = None


DEFAULT = AttentionOptions()


def split_choice(cell_type: str, group: int) -> SplitChoice:
    """For query heads in groups of `group` over cells of `cell_type`."""
    if cell_type == "f32":
        return SplitChoice(block=32, stages=1)
    if cell_type == "q8_0":
        return SplitChoice(matrix=group > 4, stages=1)
    return SplitChoice()


def flash_choice(cell_type: str, head_dim: int, capability: tuple[int, int]) -> FlashChoice:
    """For heads of `head_dim` over cells of `cell_type`; devices before 9.0 and after have less shared memory."""
    wide = head_dim > 64
    if cell_type == "f32":
        return FlashChoice(tile=16, block=32, warps=4, stages=1)
    if cell_type == "q8_0":
        return FlashChoice(tile=64, block=64, warps=4, stages=2)
    if wide and capability[0] != 9:
        return FlashChoice(tile=64, block=64, warps=4, stages=2)
    return FlashChoice()
