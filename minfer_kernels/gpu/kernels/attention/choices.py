"""Tile sizes of the attention kernels: constants by cell type, shape and device, never measured while running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minfer_kernels.gpu.choice import Line, TileTable
from minfer_kernels.gpu.targets import GFX942, MMA_SYNC, SM_80, SM_120, Target

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
PACKED = ("q8_0",)


SPLIT = TileTable(
    "attention.split",
    "cells",
    "query heads of a KV head",
    (
        Line(
            SplitChoice(block=32, stages=2),
            "without a second stage the compiler stops at 128 registers and spills two",
            (SM_80,),
            ("f32",),
        ),
        Line(SplitChoice(block=32, stages=1), "float32 cells take twice the registers", of=("f32",)),
        Line(SplitChoice(matrix=False, stages=1), "few heads would leave a matrix product empty", of=PACKED, up_to=4),
        Line(SplitChoice(stages=1), "a block's cells go through registers to be unpacked", of=PACKED),
        Line(SplitChoice(), "the keys of the next block arrive while this one is attended"),
    ),
)

FLASH = TileTable(
    "attention.flash",
    "cells",
    "head size",
    (
        Line(FlashChoice(64, 32, 4, 1), "float32 products aren't made of parts here", (GFX942,), ("f32",)),
        Line(FlashChoice(16, 32, 4, 1), "the parts of float32 products take the most registers", of=("f32",)),
        Line(FlashChoice(64, 64, 4, 2), "a block's cells go through registers to be unpacked", of=PACKED, up_to=64),
        Line(
            FlashChoice(64, 64, 8, 2),
            "a block's cells go through registers, of which four warps spill",
            MMA_SYNC,
            PACKED,
        ),
        Line(FlashChoice(64, 64, 4, 2), "a block's cells go through registers to be unpacked", of=PACKED),
        Line(FlashChoice(128, 64, 4, 2), "half the instructions of eight warps, which spill", (GFX942,)),
        Line(FlashChoice(64, 64, 4, 2), "128 rows spill", (SM_120,), up_to=64),
        Line(FlashChoice(128, 64, 8, 2), "as many rows as fit the registers share a block's cells", (SM_80,), up_to=64),
        Line(FlashChoice(64, 64, 8, 2), "128 rows spill, and so do 64 on four warps of sm_120", MMA_SYNC),
        Line(FlashChoice(128, 64, 8, 2), "as many rows as fit the registers share a block's cells"),
    ),
)

TABLES = (SPLIT, FLASH)


def split_choice(target: Target, cell_type: str, group: int) -> SplitChoice:
    """For query heads in groups of `group` over cells of `cell_type`."""
    return SPLIT.choose(target, cell_type, group)


def flash_choice(target: Target, cell_type: str, head_dim: int) -> FlashChoice:
    """For heads of `head_dim` over cells of `cell_type`."""
    return FLASH.choose(target, cell_type, head_dim)
