"""From the blocks of a file to planes, exactly, and what planes cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import CHUNK_ELEMENTS, Bytes, Format
from minfer_ir.formats.bits import unpack_planes
from minfer_kernels.gpu.planes.layouts import LAYOUTS, UNIT, PlaneLayout

PlaneArrays = Mapping[str, NDArray[Any]]

STORAGE = {"i32": "<i4", "i16": "<i2", "f16": "<f2", "bf16": "<u2", "f32": "<f4"}
"""numpy's type of a plane's entries; bfloat16 as its bits."""


class Fields(NamedTuple):
    """Many blocks taken apart: quants as stored `[n, block]`, float16 scales `[n, 1 or 2]`, and the two bytes of
    sub-scales of every unit `[n, units, 2]`, where the format has them."""

    quants: Bytes
    scales: NDArray[np.float16]
    sub: Bytes | None = None


def matrix_bytes(fmt: Format, rows: int, k: int) -> int:
    """Bytes of the planes of a matrix."""
    return rows * LAYOUTS[fmt.name].row_bytes(k)


def pack(fmt: Format, rows: Bytes) -> dict[str, NDArray[Any]]:
    """Planes `[n, stride]` by name, of rows of blocks `[n, row_bytes]`."""
    layout, k = LAYOUTS[fmt.name], fmt.row_elements(rows.shape[-1])
    planes = {p.name: np.zeros((len(rows), p.stride(k)), STORAGE[p.dtype]) for p in layout.planes}
    step = max(1, 4 * CHUNK_ELEMENTS // k)
    for start in range(0, len(rows), step):
        part = slice(start, min(start + step, len(rows)))
        for name, entries in _plane_entries(layout, rows[part]).items():
            planes[name][part, : entries.shape[1]] = entries
    return planes


def _plane_entries(layout: PlaneLayout, rows: Bytes) -> dict[str, NDArray[Any]]:
    """The entries of some rows, without padding."""
    fmt: Any = layout.format
    if not layout.bits:
        return {"values": np.ascontiguousarray(rows).view(STORAGE[layout.planes[0].dtype])}
    blocks = np.ascontiguousarray(rows).reshape(-1, fmt.block_bytes).view(fmt.layout)[:, 0]
    fields = READERS[fmt.name](fmt, blocks)
    # Of every unit [row, unit, half, quad, byte].
    quants = fields.quants.reshape(len(rows), -1, 2, 4, 4)
    low, high = quants & np.uint8((1 << layout.bits) - 1), quants >> np.uint8(layout.bits % 8)
    packed = {"quants": PACKERS[layout.bits](low), "scales": _joined(fields.scales).reshape(len(rows), -1)}
    if layout.high_bits:
        packed["high"] = PACKERS[layout.high_bits](high)
    if fields.sub is not None:
        packed["sub"] = np.ascontiguousarray(fields.sub).view("<i2").reshape(len(rows), -1)
    return packed


def _joined(scales: NDArray[np.float16]) -> NDArray[Any]:
    """One float16 a block, or the int32 of two."""
    return np.ascontiguousarray(scales).view("<i4") if scales.shape[1] == 2 else scales


def _words(data: Bytes) -> NDArray[np.int32]:
    """Bytes `[rows, ...]` as the words of each row."""
    return np.ascontiguousarray(data).reshape(len(data), -1).view("<i4")


def _pack1(bits: Bytes) -> NDArray[np.int32]:
    shifts = np.arange(8, dtype=np.uint8).reshape(2, 4, 1)
    return _words(np.bitwise_or.reduce(bits << shifts, axis=(2, 3)))


def _pack2(pairs: Bytes) -> NDArray[np.int32]:
    # Quad 2 v + j of half h stands 4 j + 2 h bits up in word v.
    split = pairs.reshape(*pairs.shape[:3], 2, 2, 4)
    shifts = np.array([[0, 4], [2, 6]], np.uint8).reshape(2, 1, 2, 1)
    return _words(np.bitwise_or.reduce(split << shifts, axis=(2, 4)))


def _pack4(nibbles: Bytes) -> NDArray[np.int32]:
    return _words(nibbles[:, :, 0] | nibbles[:, :, 1] << np.uint8(4))


def _pack8(quants: Bytes) -> NDArray[np.int32]:
    return _words(quants.transpose(0, 2, 1, 3, 4))


PACKERS: Mapping[int, Callable[[Bytes], NDArray[np.int32]]] = {1: _pack1, 2: _pack2, 4: _pack4, 8: _pack8}


def _small(fmt: Any, blocks: Any) -> Fields:
    scales = [blocks[name] for name in ("d", "m") if name in fmt.layout.names]
    return Fields(fmt.quants(blocks), np.stack(scales, axis=1))


def _int8(fmt: Any, blocks: Any) -> Fields:
    return Fields(blocks["qs"].view(np.uint8), blocks["d"][:, None])


def _levels(fmt: Any, blocks: Any) -> Fields:
    return Fields(unpack_planes(blocks["qs"], 4, 16), blocks["d"][:, None])


def _affine(fmt: Any, blocks: Any) -> Fields:
    scales, offsets = fmt.sub_scales(blocks)
    # Of 16 weights each (Q2_K): both in a byte. Of 32: side by side.
    halves = scales.shape[1] == 16
    sub = (scales | offsets << np.uint8(4)) if halves else np.stack([scales, offsets], axis=2)
    return Fields(fmt.quants(blocks), np.stack([blocks["d"], blocks["dmin"]], axis=1), sub.reshape(len(blocks), -1, 2))


def _centred(fmt: Any, blocks: Any) -> Fields:
    quants = (fmt.quants(blocks) - np.float32(fmt.lowest)).astype(np.uint8)
    sub = fmt.sub_scales(blocks).astype(np.int8).view(np.uint8)
    return Fields(quants, blocks["d"][:, None], sub.reshape(len(blocks), -1, 2))


READERS: Mapping[str, Callable[[Any, Any], Fields]] = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1"), _small),
    "Q8_0": _int8,
    "IQ4_NL": _levels,
    **dict.fromkeys(("Q2_K", "Q4_K", "Q5_K"), _affine),
    **dict.fromkeys(("Q3_K", "Q6_K"), _centred),
}


def stacked(fmt: Format, parts: Sequence[Bytes]) -> dict[str, NDArray[Any]]:
    """The planes of matrices stacked along their rows."""
    packed = [pack(fmt, part) for part in parts]
    names = [plane.name for plane in LAYOUTS[fmt.name].planes]
    return {name: packed[0][name] if len(packed) == 1 else np.concatenate([p[name] for p in packed]) for name in names}


assert UNIT == 32, "the packers spell out a unit's quads"
