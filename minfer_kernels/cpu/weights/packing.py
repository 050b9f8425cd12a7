"""Packing: GGUF rows of blocks into the interleaved groups of a `WeightLayout`, and back for tests.

Both directions walk the rows in pieces that stay in a core's cache, so the peak is the packed buffer plus a
few hundred KiB. What moves where is data (`weights.moves`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats import Format
from minfer_kernels.cpu.weights.layouts import Field, WeightLayout, layout_of
from minfer_kernels.cpu.weights.moves import PLANE_GROUP, Move, moves_of, source_bytes
from minfer_kernels.cpu.weights.plane_bits import regroup
from minfer_kernels.cpu.weights.scale_bits import join_k4, join_q3, split_k4, split_q3

Bytes = NDArray[np.uint8]
Transform = Callable[..., tuple[Bytes, ...]]

ALIGNMENT = 64
_PIECE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A packed `[n, k]` weight: `buffer` is uint8, aligned to 64 bytes, `layout.nbytes(n, k)` long."""

    layout: WeightLayout
    n: int
    k: int
    buffer: Bytes

    @property
    def address(self) -> int:
        """Address of the first group."""
        return self.buffer.ctypes.data


_UNPACKINGS: dict[str, tuple[Transform, Callable[..., Bytes]]] = {
    "k4": (split_k4, join_k4),
    "q3": (split_q3, join_q3),
}


def pack(fmt: Format, raw_parts: Sequence[Bytes], k: int, rows: int) -> PackedWeight:
    """Pack one weight, or several of the same format stacked row on row, into groups of `rows` in one buffer.

    Args:
        fmt: the weight format of every part.
        raw_parts: GGUF row bytes, uint8 `[n_i, fmt.row_bytes(k)]`.
        k: elements in a row.
        rows: rows of a group, 8 or 16.

    Raises:
        ValueError: `fmt` has no packed layout, or a part is not rows of `k` elements of it.
    """
    layout = layout_of(fmt.name, rows)
    check_parts(fmt, raw_parts, k)
    n = sum(len(part) for part in raw_parts)
    packed = PackedWeight(layout, n, k, _aligned_empty(layout.nbytes(n, k)))
    groups = _group_blocks(packed)
    for first, piece in _pieces(raw_parts, rows):
        _pack_rows(fmt, layout, piece, groups[first // layout.rows :])
    return packed


def check_parts(fmt: Format, parts: Sequence[Bytes], k: int) -> None:
    """Raise ValueError unless every part is uint8 rows of `k` elements of `fmt`."""
    row_bytes = fmt.row_bytes(k)
    for index, part in enumerate(parts):
        if part.dtype != np.uint8 or part.ndim != 2 or part.shape[1] != row_bytes:
            raise ValueError(
                f"part {index} of a packed {fmt.name} weight is {part.dtype} {part.shape}, "
                f"expected uint8 rows of {row_bytes} bytes ({k} elements)"
            )


def unpack(fmt: Format, packed: PackedWeight) -> Bytes:
    """The GGUF rows `[n, row_bytes]` that `packed` was made of, bit for bit."""
    layout, groups = packed.layout, _group_blocks(packed)
    raw = np.empty((len(groups) * layout.rows, fmt.row_bytes(packed.k)), np.uint8)
    step = _rows_per_piece(raw.shape[1], layout.rows)
    for first in range(0, len(raw), step):
        rows = raw[first : first + step]
        rows[:] = _unpack_rows(fmt, layout, groups[first // layout.rows :][: len(rows) // layout.rows])
    return raw[: packed.n]


def _aligned_empty(nbytes: int) -> Bytes:
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def _group_blocks(packed: PackedWeight) -> Bytes:
    layout = packed.layout
    return packed.buffer.reshape(layout.groups(packed.n), packed.k // layout.block, layout.block_bytes)


def _rows_per_piece(row_bytes: int, rows: int) -> int:
    return max(1, _PIECE_BYTES // max(1, row_bytes * rows)) * rows


def _pieces(parts: Sequence[Bytes], rows: int) -> Iterator[tuple[int, Bytes]]:
    """(first row, rows) of the stacked parts, whole groups each; the last is padded with zero rows."""
    total = sum(len(part) for part in parts)
    if total == 0:
        return
    row_bytes = parts[0].shape[1]
    step = _rows_per_piece(row_bytes, rows)
    starts = np.cumsum([0, *(len(part) for part in parts)])
    for first in range(0, total, step):
        count = min(step, total - first)
        piece = np.zeros((-(-count // rows) * rows, row_bytes), np.uint8)
        for start, part in zip(starts, parts, strict=False):
            low, high = max(first, start), min(first + count, start + len(part))
            if low < high:
                piece[low - first : high - first] = part[low - start : high - start]
        yield first, piece


def _pack_rows(fmt: Format, layout: WeightLayout, rows: Bytes, groups: Bytes) -> None:
    """Pack `rows [layout.rows * g, row_bytes]` into the first g of `groups [.., n_blocks, block_bytes]`."""
    blocks = rows.reshape(len(rows), -1, fmt.block_bytes)
    groups = groups[: len(rows) // layout.rows]
    for move in moves_of(layout):
        source = np.ascontiguousarray(blocks[..., source_bytes(fmt, move)])
        for name, numbers in zip(move.fields, _split(move, source), strict=True):
            field = layout.field(name)
            target = _interleaved(layout, field, groups)
            by_unit = numbers.view(_unit_dtype(field)).reshape(-1, field.row_bytes // field.unit).T
            if move.group and move.group != PLANE_GROUP[field.bits]:
                by_unit = regroup(np.ascontiguousarray(by_unit), field.bits, move.group, PLANE_GROUP[field.bits])
            units = by_unit.reshape(-1, len(groups), layout.rows, blocks.shape[1])
            target[...] = units.transpose(1, 3, 0, 2)


def _unpack_rows(fmt: Format, layout: WeightLayout, groups: Bytes) -> Bytes:
    blocks = np.empty((len(groups) * layout.rows, groups.shape[1], fmt.block_bytes), np.uint8)
    for move in moves_of(layout):
        sources = []
        for name in move.fields:
            field = layout.field(name)
            by_unit = (
                _interleaved(layout, field, groups).transpose(2, 0, 3, 1).reshape(-1, blocks.size // fmt.block_bytes)
            )
            if move.group and move.group != PLANE_GROUP[field.bits]:
                by_unit = regroup(by_unit, field.bits, PLANE_GROUP[field.bits], move.group)
            sources.append(np.ascontiguousarray(by_unit.T).view(np.uint8).reshape(*blocks.shape[:2], -1))
        blocks[..., source_bytes(fmt, move)] = _joined(move, sources)
    return blocks.reshape(len(blocks), -1)


def _split(move: Move, source: Bytes) -> tuple[Bytes, ...]:
    return _UNPACKINGS[move.unpacking][0](source) if move.unpacking else (source,)


def _joined(move: Move, sources: Sequence[Bytes]) -> Bytes:
    return _UNPACKINGS[move.unpacking][1](*sources) if move.unpacking else sources[0]


def _unit_dtype(field: Field) -> np.dtype[np.unsignedinteger]:
    return np.dtype(f"u{field.unit}")


def _interleaved(layout: WeightLayout, field: Field, groups: Bytes) -> NDArray[np.unsignedinteger]:
    """A field of `groups` as a view `[groups, n_blocks, units, rows]`."""
    region = groups[..., field.offset : field.offset + field.nbytes]
    return region.view(_unit_dtype(field)).reshape(*groups.shape[:2], -1, layout.rows)
