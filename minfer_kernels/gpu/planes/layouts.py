"""How a matrix of every weight format lies on the device: as data.

A *unit* is 32 consecutive weights of a row: a block of the 32-element types, an eighth of a K-quant's. Its quants are
eight *quads* of four bytes, 16 weights in each half; quad `w` of half `h` holds elements 16 h + 4 w to 16 h + 4 w + 3,
as the int32 words of an activation row do. Planes hold them so that a thread's load is one unit's 16 bytes and a warp's
is contiguous:

- "quants" of 4 bits: word w of a unit's four is quad w of the first half, with the second half's four bits above.
- "quants" of 8 bits: all first halves of a row, then all second halves, four words a unit in each.
- "quants" or "high" of 2 bits: word v of a unit's two has in its bytes, from the lowest bits up, quad 2 v of the first
  half, of the second, quad 2 v + 1 of the first half, of the second.
- "high" of 1 bit: one word a unit; bit 4 h + w of its bytes is quad w of half h.
- "scales": float16 d of a block, or the int32 of d and, above it, the minimum.
- "sub" of K-quants: two bytes a unit: its scale and offset (Q4_K, Q5_K), the signed scales of its halves (Q3_K, Q6_K),
  or both of both in four bits each (Q2_K: a byte is a half's scale and, above it, offset).

Rows are padded to whole 16 bytes. Floats are one plane, "values", as in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minfer_ir.formats import BF16, F16, F32, IQ4_NL, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0
from minfer_ir.formats.base import Format

UNIT = 32
ALIGNMENT = 16
"""Bytes that every row of a plane is a multiple of."""
ITEM_BYTES = {"i32": 4, "i16": 2, "f16": 2, "bf16": 2, "f32": 4}


@dataclass(frozen=True, slots=True)
class Plane:
    """One array `[rows, stride]` of type `dtype`, with `count` entries for every `per` weights of a row."""

    name: str
    dtype: str
    count: int
    per: int

    def stride(self, k: int) -> int:
        """Entries from row to row of a matrix with `k` columns."""
        item = ITEM_BYTES[self.dtype]
        return -(-k // self.per * self.count * item // ALIGNMENT) * ALIGNMENT // item

    def row_bytes(self, k: int) -> int:
        """Bytes of a row."""
        return self.stride(k) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """The planes of one weight format.

    A quant has `bits` in the plane "quants" and `high_bits` in "high"; `centre` is subtracted from it. `minimum`:
    blocks have a second float16, which is added (Q4_1, Q5_1) or subtracted (K-quants).
    """

    format: Format
    planes: tuple[Plane, ...]
    bits: int = 0
    high_bits: int = 0
    centre: int = 0
    minimum: bool = False

    @property
    def name(self) -> str:
        """The format's."""
        return self.format.name

    def plane(self, name: str) -> Plane | None:
        """The plane of that name, where there is one."""
        return next((plane for plane in self.planes if plane.name == name), None)

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` weights in all planes."""
        return sum(plane.row_bytes(k) for plane in self.planes)

    def __str__(self) -> str:
        planes = ", ".join(f"{p.name} {p.count} {p.dtype}/{p.per}" for p in self.planes)
        return f"planes[{self.name}]: {planes}"


def _quants(
    fmt: Format, bits: int, high_bits: int = 0, centre: int = 0, minimum: bool = False, sub: bool = False
) -> PlaneLayout:
    high = (Plane("high", "i32", high_bits, UNIT),) if high_bits else ()
    scales = Plane("scales", "i32" if minimum else "f16", 1, fmt.block_size)
    subs = (Plane("sub", "i16", 1, UNIT),) if sub else ()
    planes = (Plane("quants", "i32", bits, UNIT), *high, scales, *subs)
    return PlaneLayout(fmt, planes, bits, high_bits, centre, minimum)


def _floats(fmt: Format, dtype: str) -> PlaneLayout:
    return PlaneLayout(fmt, (Plane("values", dtype, 1, 1),))


LAYOUTS: Mapping[str, PlaneLayout] = {
    layout.name: layout
    for layout in (
        _floats(F32, "f32"),
        _floats(F16, "f16"),
        _floats(BF16, "bf16"),
        _quants(Q4_0, 4, centre=8),
        _quants(Q4_1, 4, minimum=True),
        _quants(Q5_0, 4, 1, centre=16),
        _quants(Q5_1, 4, 1, minimum=True),
        _quants(Q8_0, 8),
        _quants(Q2_K, 2, minimum=True, sub=True),
        _quants(Q3_K, 2, 1, centre=4, sub=True),
        _quants(Q4_K, 4, minimum=True, sub=True),
        _quants(Q5_K, 4, 1, minimum=True, sub=True),
        _quants(Q6_K, 4, 2, centre=32, sub=True),
        _quants(IQ4_NL, 4),
    )
}
"""By the format's name. A plain dictionary, because Triton copies what its functions refer to."""
