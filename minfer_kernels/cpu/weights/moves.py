"""How the fields of a GGUF block become the fields of a packed group block: the data that packing follows.

A field of the block is taken as it is, its bit planes are regrouped, or its small scales are unpacked.
"""

from __future__ import annotations

from dataclasses import dataclass

from minfer_ir.formats import BlockFormat, Format
from minfer_kernels.cpu.weights.layouts import WeightLayout, block_offset

PLANE_GROUP = {4: 16, 2: 4, 1: 4}
"""Bytes of a run in packed layouts, by bits."""


@dataclass(frozen=True, slots=True)
class Move:
    """GGUF field `source` to packed `fields`.

    `group` is the bytes of a plane's run in GGUF, 0 for whole numbers, which are taken as they are. `unpacking` names
    how small scales are unpacked: `k4` (Q4_K, Q5_K: scales and minimums of six bits) or `q3` (Q3_K).
    """

    source: str
    fields: tuple[str, ...]
    group: int = 0
    unpacking: str = ""


_Q4 = Move("qs", ("q4",), 16)
_Q1 = Move("qh", ("q1",), 1)
_K4 = Move("qs", ("q4",), 32)
_K2 = Move("qs", ("q2",), 32)
_K_SCALES = Move("scales", ("scales", "mins"), unpacking="k4")
_D, _M, _DMIN = Move("d", ("d",)), Move("m", ("m",)), Move("dmin", ("dmin",))

_MOVES: dict[str, tuple[Move, ...]] = {
    "Q4_0": (_Q4, _D),
    "Q4_1": (_Q4, _D, _M),
    "Q5_0": (_Q4, _Q1, _D),
    "Q5_1": (_Q4, _Q1, _D, _M),
    "Q8_0": (Move("qs", ("q8",)), _D),
    "IQ4_NL": (_Q4, _D),
    "Q2_K": (_K2, Move("scales", ("scales",)), _D, _DMIN),
    "Q3_K": (_K2, Move("hmask", ("q1",), 32), Move("scales", ("scales",), unpacking="q3"), _D),
    "Q4_K": (_K4, _K_SCALES, _D, _DMIN),
    "Q5_K": (_K4, Move("qh", ("q1",), 32), _K_SCALES, _D, _DMIN),
    "Q6_K": (Move("ql", ("q4",), 64), Move("qh", ("q2",), 32), Move("scales", ("scales",)), _D),
}


def moves_of(layout: WeightLayout) -> tuple[Move, ...]:
    """The moves that fill a group block of `layout`; a float format has its values alone."""
    return _MOVES.get(layout.format, (Move("", ("values",)),))


def source_bytes(fmt: Format, move: Move) -> slice:
    """Where the moved field lies in a GGUF block."""
    if not isinstance(fmt, BlockFormat):
        return slice(0, fmt.block_bytes)
    offset = block_offset(fmt, move.source)
    return slice(offset, offset + fmt.layout[move.source].itemsize)
