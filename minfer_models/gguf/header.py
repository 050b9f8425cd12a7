"""The header of one GGUF file: counts, metadata and tensor infos, read strictly.

Layout (GGUF specification, ggml/docs/gguf.md): magic, u32 version, u64 tensor count, u64 key count, the key-value
pairs, the tensor infos, padding to `general.alignment`, the tensor data. Versions 2 and 3 share it.
Nested arrays, which the specification allows and no writer makes, are refused: nothing here recurses.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from minfer_models.gguf import limits
from minfer_models.gguf.constants import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, GGUFValueType
from minfer_models.gguf.cursor import Cursor
from minfer_models.gguf.metadata import TypedValue

MAGIC = b"GGUF"
VERSIONS = (2, 3)


_U32 = struct.Struct("<I")
_PREFIX_BYTES = 24  # magic, version, two counts

NUMPY_TYPES: dict[GGUFValueType, np.dtype[np.generic]] = {
    GGUFValueType.UINT8: np.dtype("<u1"),
    GGUFValueType.INT8: np.dtype("<i1"),
    GGUFValueType.UINT16: np.dtype("<u2"),
    GGUFValueType.INT16: np.dtype("<i2"),
    GGUFValueType.UINT32: np.dtype("<u4"),
    GGUFValueType.INT32: np.dtype("<i4"),
    GGUFValueType.FLOAT32: np.dtype("<f4"),
    GGUFValueType.BOOL: np.dtype("?"),
    GGUFValueType.UINT64: np.dtype("<u8"),
    GGUFValueType.INT64: np.dtype("<i8"),
    GGUFValueType.FLOAT64: np.dtype("<f8"),
}

SCALARS: dict[GGUFValueType, struct.Struct] = {
    GGUFValueType.UINT8: struct.Struct("<B"),
    GGUFValueType.INT8: struct.Struct("<b"),
    GGUFValueType.UINT16: struct.Struct("<H"),
    GGUFValueType.INT16: struct.Struct("<h"),
    GGUFValueType.UINT32: struct.Struct("<I"),
    GGUFValueType.INT32: struct.Struct("<i"),
    GGUFValueType.FLOAT32: struct.Struct("<f"),
    GGUFValueType.UINT64: struct.Struct("<Q"),
    GGUFValueType.INT64: struct.Struct("<q"),
    GGUFValueType.FLOAT64: struct.Struct("<d"),
}


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """A tensor info as it stands in the file: `ne` in GGUF order (contiguous first), `offset` into the data."""

    name: str
    ne: tuple[int, ...]
    type_id: int
    offset: int
    at: int


@dataclass(frozen=True, slots=True)
class Header:
    """All of a file before its tensor data; `end` is the byte after the last tensor info."""

    version: int
    alignment: int
    metadata: dict[str, TypedValue]
    tensors: list[TensorHeader]
    end: int


def read_header(cursor: Cursor) -> Header:
    """Read the header at the start of `cursor`; raises GGUFError for anything that is wrong in it."""
    version = _version(cursor)
    cursor.need(_PREFIX_BYTES - cursor.pos, "the header")
    n_tensors = cursor.u64("the tensor count")
    n_keys = cursor.u64("the key count")
    _check_count(cursor, "tensors", n_tensors, limits.MAX_TENSORS, 8)
    _check_count(cursor, "metadata keys", n_keys, limits.MAX_KEYS, 16)
    metadata = _metadata(cursor, n_keys)
    alignment = _alignment(cursor, metadata)
    tensors = _tensors(cursor, n_tensors)
    return Header(version, alignment, metadata, tensors, cursor.pos)


def _version(cursor: Cursor) -> int:
    magic = bytes(cursor.data[:4])
    if magic == MAGIC[::-1]:
        raise cursor.error(f"the magic is {magic!r}, byte-swapped: a big-endian file, which minfer does not read")
    if magic != MAGIC:
        raise cursor.error(f"not a GGUF file: it starts with {magic!r}, not {MAGIC!r}")
    cursor.pos = 4
    version: int = cursor.unpack(_U32, "the version")
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in VERSIONS and swapped <= max(VERSIONS) and swapped > 0:
        message = f"version {version} is {swapped} byte-swapped: a big-endian file, which minfer does not read"
        raise cursor.error(message, offset=4)
    if version not in VERSIONS:
        raise cursor.error(f"GGUF version {version}, but minfer reads versions 2 and 3", offset=4)
    return version


def _check_count(cursor: Cursor, what: str, count: int, limit: int, offset: int) -> None:
    if count > limit:
        message = f"{count} {what} are declared in a file of {cursor.size} bytes; minfer accepts up to {limit}"
        raise cursor.error(message, offset=offset)


def _metadata(cursor: Cursor, n_keys: int) -> dict[str, TypedValue]:
    entries: dict[str, TypedValue] = {}
    n_strings = 0
    for index in range(n_keys):
        start, cursor.key = cursor.pos, None
        key = cursor.string(f"the name of key {index}")
        n_bytes = len(key.encode())
        if not 0 < n_bytes <= limits.MAX_KEY:
            message = f"the name of key {index} has {n_bytes} bytes, not 1 to {limits.MAX_KEY}"
            raise cursor.error(message, offset=start)
        cursor.key = key
        if key in entries:
            raise cursor.error(f"appears twice, first at byte {entries[key].offset}", offset=start)
        entries[key] = entry = _value(cursor, start, limits.MAX_STRINGS - n_strings)
        if entry.element == GGUFValueType.STRING:
            n_strings += len(entry.value)  # type: ignore[arg-type]
    cursor.key = None
    return entries


def _value_type(cursor: Cursor, what: str) -> GGUFValueType:
    type_id: int = cursor.unpack(_U32, what)
    if type_id >= len(GGUFValueType):
        raise cursor.error(f"{what} is {type_id}, not 0 to {len(GGUFValueType) - 1}", offset=cursor.pos - 4)
    return GGUFValueType(type_id)


def _value(cursor: Cursor, start: int, strings_left: int) -> TypedValue:
    value_type = _value_type(cursor, "the value type")
    if value_type == GGUFValueType.STRING:
        return TypedValue(value_type, cursor.string("the value"), None, start)
    if value_type == GGUFValueType.BOOL:
        raw = int(cursor.numbers(1, np.dtype(np.uint8), "the value")[0])
        if raw > 1:
            raise cursor.error(f"a BOOL holds {raw}, not 0 or 1", offset=cursor.pos - 1)
        return TypedValue(value_type, bool(raw), None, start)
    if value_type == GGUFValueType.ARRAY:
        return _array(cursor, start, strings_left)
    return TypedValue(value_type, cursor.unpack(SCALARS[value_type], "the value"), None, start)


def _array(cursor: Cursor, start: int, strings_left: int) -> TypedValue:
    element = _value_type(cursor, "the array's element type")
    if element == GGUFValueType.ARRAY:
        raise cursor.error("an array of arrays, which minfer does not read", offset=cursor.pos - 4)
    count = cursor.u64("the array's length")
    if element != GGUFValueType.STRING:
        values = cursor.numbers(count, NUMPY_TYPES[element], "the array")
        if element == GGUFValueType.BOOL and (values.view(np.uint8) > 1).any():
            raise cursor.error("an array of BOOL holds values other than 0 and 1", offset=start)
        return TypedValue(GGUFValueType.ARRAY, values, element, start)
    cursor.need(count * 8, f"the array ({count} strings)")
    if count > strings_left:
        limit = f"{limits.MAX_STRINGS} in all arrays together"
        raise cursor.error(f"an array of {count} strings; minfer accepts up to {limit}", offset=start)
    return TypedValue(GGUFValueType.ARRAY, cursor.strings(count, "the array"), element, start)


def _alignment(cursor: Cursor, metadata: dict[str, TypedValue]) -> int:
    entry = metadata.get(ALIGNMENT_KEY)
    if entry is None:
        return DEFAULT_ALIGNMENT
    cursor.key = ALIGNMENT_KEY
    if entry.type != GGUFValueType.UINT32:
        raise cursor.error(f"must be UINT32, found {entry.type_name} {str(entry.value)[:40]!r}", offset=entry.offset)
    assert isinstance(entry.value, int)
    fault = limits.alignment_fault(entry.value)
    if fault is not None:
        raise cursor.error(fault, offset=entry.offset)
    cursor.key = None
    return entry.value


def _tensors(cursor: Cursor, n_tensors: int) -> list[TensorHeader]:
    tensors: dict[str, TensorHeader] = {}
    for index in range(n_tensors):
        cursor.tensor = None
        tensor = _tensor(cursor, index)
        if tensor.name in tensors:
            raise cursor.error(f"appears twice, first at byte {tensors[tensor.name].at}", offset=tensor.at)
        tensors[tensor.name] = tensor
    cursor.tensor = None
    return list(tensors.values())


def _tensor(cursor: Cursor, index: int) -> TensorHeader:
    start = cursor.pos
    name = cursor.string(f"the name of tensor {index}")
    n_bytes = len(name.encode())
    if not 0 < n_bytes <= limits.MAX_TENSOR_NAME:
        message = f"the name of tensor {index} has {n_bytes} bytes, not 1 to {limits.MAX_TENSOR_NAME}"
        raise cursor.error(message, offset=start)
    cursor.tensor = name
    n_dims: int = cursor.unpack(_U32, "the number of dimensions")
    if n_dims > limits.MAX_DIMS:
        raise cursor.error(f"{n_dims} dimensions, more than {limits.MAX_DIMS}", offset=cursor.pos - 4)
    ne = tuple(cursor.u64(f"dimension {axis}") for axis in range(n_dims))
    for axis, n in enumerate(ne):
        if n == 0 or n > limits.MAX_DIM:
            at = cursor.pos - 8 * (n_dims - axis)
            raise cursor.error(f"dimension {axis} is {n}, not 1 to {limits.MAX_DIM}", offset=at)
    type_id: int = cursor.unpack(_U32, "the type")
    return TensorHeader(name, ne, type_id, cursor.u64("the offset"), start)
