"""Tiles of the product kernels: constants by weight format, rows and device, never measured while running."""

from __future__ import annotations

from dataclasses import dataclass

import triton

from minfer_kernels.gpu.choice import Line, TileTable
from minfer_kernels.gpu.planes.layouts import LAYOUTS, UNIT
from minfer_kernels.gpu.targets import GFX942, INTERPRETER, MMA_SYNC, SM_80, SM_90, SM_120, Target

MOST_ROWS = 16
"""Rows of activations that share one pass over the weights; more go through tiles, or in turns."""
FLOATS = tuple(name for name, layout in LAYOUTS.items() if not layout.bits)
WIDE_FLOATS = ("F32", "BF16")
"""Weights that float16 can't hold, so that both operands stay float32."""


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """Of the streams: `rows` of the weight to a program, and how many `lanes` make a warp."""

    rows: int
    lanes: int


@dataclass(frozen=True, slots=True)
class StreamTile:
    """`rows` of the weight to a program, `lanes` units (elements, of floats) side by side, `warps`."""

    rows: int
    lanes: int
    warps: int


@dataclass(frozen=True, slots=True)
class DotTile:
    """A program's tile of the result, `rows` of activations by `columns` of weights, `units` of 32 terms at a time."""

    rows: int
    columns: int
    units: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class IntegerTile:
    """A program's tile of the result, `rows` of activations by `columns` of weights, one unit at a time."""

    rows: int
    columns: int
    warps: int
    stages: int


STREAM = TileTable(
    "products.stream",
    "weights",
    "rows",
    (
        Line(
            StreamChoice(64, 32),
            "a program costs more than its arithmetic, and every row of the weight keeps its bits",
            (INTERPRETER,),
        ),
        Line(StreamChoice(4, 128), "the loop comes out unrolled, and spills with more", (GFX942,), ("F32",), up_to=4),
        Line(StreamChoice(4, 512), "warps of 64 threads with eight elements each", (GFX942,), FLOATS, up_to=4),
        Line(StreamChoice(1, 512), "the sums of more rows must fit the registers", (GFX942,), FLOATS),
        Line(StreamChoice(4, 64), "warps of 64 threads with 16 bytes of quants each", (GFX942,)),
        Line(StreamChoice(4, 128), "of eight elements a thread, two registers spill", (SM_120,), FLOATS, up_to=4),
        Line(StreamChoice(4, 256), "a thread has eight elements to load at a time", of=FLOATS, up_to=4),
        Line(StreamChoice(1, 256), "the sums of more rows must fit the registers", of=FLOATS),
        Line(StreamChoice(4, 32), "a thread has 16 bytes of quants to load at a time"),
    ),
)

DOT = TileTable(
    "products.tiles",
    "weights",
    "rows",
    (
        Line(
            DotTile(32, 64, 1, 4, 3),
            "of 64 terms, the three parts of a float32 product spill",
            (SM_90, *MMA_SYNC),
            WIDE_FLOATS,
            up_to=32,
        ),
        Line(
            DotTile(64, 64, 1, 4, 3),
            "of 64 terms, the three parts of a float32 product spill",
            MMA_SYNC,
            WIDE_FLOATS,
        ),
        Line(DotTile(32, 64, 2, 4, 2), "few rows, and two stages of the 64 KiB", (GFX942,), up_to=32),
        Line(
            DotTile(64, 64, 2, 4, 2), "no more rows than there are, and two stages of the 64 KiB", (GFX942,), up_to=64
        ),
        Line(DotTile(64, 64, 2, 4, 2), "a third stage of float32 would take all 64 KiB", (GFX942,), FLOATS),
        Line(DotTile(128, 128, 1, 4, 2), "two programs share the 64 KiB; with a third stage they would not", (GFX942,)),
        Line(DotTile(32, 64, 2, 4, 3), "few rows leave more programs to the columns", up_to=32),
        Line(DotTile(64, 64, 2, 4, 3), "no more rows than there are", up_to=64),
        Line(
            DotTile(64, 64, 2, 4, 3), "weights take two bytes or four of the stages, where quants take one", of=FLOATS
        ),
        Line(
            DotTile(128, 128, 1, 8, 3),
            "the fewest instructions per product that don't spill: 128 x 64 with 64 terms does",
            MMA_SYNC,
        ),
        Line(DotTile(128, 64, 2, 4, 3), "sums of matrix instructions that read shared memory leave registers"),
    ),
)

INTEGER = TileTable(
    "products.integer_tiles",
    "weights",
    "rows",
    (
        Line(
            IntegerTile(32, 64, 4, 2), "few rows, and fewer instructions than three stages", (SM_80, GFX942), up_to=32
        ),
        Line(IntegerTile(64, 64, 4, 2), "fewer instructions than with three stages", (SM_80, GFX942)),
        Line(IntegerTile(32, 64, 4, 3), "few rows leave more programs to the columns", up_to=32),
        Line(IntegerTile(64, 64, 4, 3), "totals and a unit's sums both live in registers"),
    ),
)

TABLES = (STREAM, DOT, INTEGER)


def stream_lanes(fmt: str, k: int) -> int:
    """Units (elements, of floats) of a row of `k` weights side by side: as many as keep a row busy.

    They are part of the canonical order of a product, so they follow from the weight alone.
    """
    if fmt in FLOATS:
        return min(1024, max(128, triton.next_power_of_2(k)))
    return min(128, max(32, triton.next_power_of_2(k // UNIT)))


def stream_tile(target: Target, fmt: str, k: int, rows: int, together: int | None = None) -> StreamTile:
    """How a few `rows` of activations meet a weight of `k` columns.

    `together`: how many of the weight's rows the last of several programs finishes, so that two or more share them.
    """
    choice, lanes = STREAM.choose(target, fmt, rows), stream_lanes(fmt, k)
    most = choice.rows if together is None else max(1, triton.next_power_of_2(together // 2 + 1) // 2)
    return StreamTile(min(choice.rows, most), lanes, max(1, lanes // choice.lanes))


def dot_tile(target: Target, fmt: str, rows: int) -> DotTile:
    """How many `rows` of activations meet weights of the format as floats."""
    return DOT.choose(target, fmt, rows)


def integer_tile(target: Target, fmt: str, rows: int) -> IntegerTile:
    """How many `rows` of activations meet weights of the format as integers."""
    return INTEGER.choose(target, fmt, rows)
