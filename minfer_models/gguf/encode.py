"""GGUF metadata to bytes, and plain Python values to typed ones."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from minfer_models.gguf import limits
from minfer_models.gguf.constants import GGUFValueType
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.header import NUMPY_TYPES, SCALARS
from minfer_models.gguf.metadata import Metadata, TypedValue
from minfer_models.gguf.strings import StringArray

PlainValue = int | float | bool | str | NDArray[Any] | StringArray | Sequence[Any]
_Pair = tuple[str, TypedValue | PlainValue]
MetadataLike = Metadata | Mapping[str, Any] | Iterable[_Pair]


def typed_entries(metadata: MetadataLike) -> dict[str, TypedValue]:
    """Typed values by key; raises GGUFError for a repeated or unacceptable key."""
    if isinstance(metadata, Metadata):
        return dict(metadata.typed_items())
    pairs = cast("Iterable[_Pair]", metadata.items() if isinstance(metadata, Mapping) else metadata)
    entries: dict[str, TypedValue] = {}
    for key, value in pairs:
        if key in entries:
            raise GGUFError("given twice", key=key)
        n_bytes = utf8_bytes(key)
        if not 0 < n_bytes <= limits.MAX_KEY:
            raise GGUFError(f"a key of {n_bytes} bytes, not 1 to {limits.MAX_KEY}", key=key[:80])
        entries[key] = value if isinstance(value, TypedValue) else typed(key, value)
    return entries


def utf8_bytes(text: str) -> int:
    """Bytes of `text` in UTF-8; raises GGUFError for lone surrogates, which have no encoding."""
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise GGUFError(f"{text!r:.80} cannot be written as UTF-8: {error.reason}") from None


def typed(key: str, value: PlainValue) -> TypedValue:
    """The usual GGUF type of a plain value.

    str STRING; bool BOOL; float FLOAT32; int UINT32, or the first of INT32, INT64, UINT64 that holds it; a numpy array
    its own element type; another sequence the type of its elements: INT32 (else INT64, UINT64) for ints.
    Use `TypedValue(type, value, element)` for another type. Raises GGUFError for anything else.
    """
    if isinstance(value, (str, bool, int, float)):
        return TypedValue(_scalar_type(key, value), value)
    if isinstance(value, StringArray):
        return TypedValue(GGUFValueType.ARRAY, value, GGUFValueType.STRING)
    if isinstance(value, np.ndarray):
        return TypedValue(GGUFValueType.ARRAY, value, _element_type(key, value.dtype))
    return TypedValue(GGUFValueType.ARRAY, value, _common_type(key, value))  # type: ignore[arg-type]


def encode_entries(entries: Mapping[str, TypedValue]) -> bytes:
    """The key-value pairs as they stand in a file; raises GGUFError for a value its type cannot hold."""
    return b"".join(encode_string(key) + encode_value(key, entry) for key, entry in entries.items())


def encode_string(text: str) -> bytes:
    """A u64 length and the bytes."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def encode_value(key: str, entry: TypedValue) -> bytes:
    """Type id and value; raises GGUFError when the value is not of the type or out of its range."""
    head = struct.pack("<I", entry.type)
    if entry.type == GGUFValueType.ARRAY:
        return head + _array(key, entry)
    try:
        return head + _scalar(entry.type, entry.value)
    except (struct.error, OverflowError, TypeError, UnicodeEncodeError) as error:
        raise GGUFError(f"{entry.value!r:.80} cannot be written as {entry.type.name}: {error}", key=key) from None


def _scalar(value_type: GGUFValueType, value: Any) -> bytes:
    if value_type == GGUFValueType.STRING:
        if not isinstance(value, str):
            raise TypeError("not a str")
        return encode_string(value)
    if value_type == GGUFValueType.BOOL:
        if not isinstance(value, (bool, np.bool)):
            raise TypeError("not a bool")
        return b"\1" if value else b"\0"
    if isinstance(value, (bool, np.bool)):
        raise TypeError("a bool")
    return SCALARS[value_type].pack(value)


def _array(key: str, entry: TypedValue) -> bytes:
    element, values = entry.element, entry.value
    if element is None or element == GGUFValueType.ARRAY or isinstance(values, (str, int, float)):
        raise GGUFError(f"{entry.type_name} of {values!r:.80} cannot be written", key=key)
    head = struct.pack("<IQ", element, len(values))
    if isinstance(values, StringArray) and element == GGUFValueType.STRING:
        return head + values.blob
    dtype = NUMPY_TYPES.get(element)
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.ndim == 1:
        return head + values.astype(dtype, copy=False).tobytes()
    items: list[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    try:
        return head + b"".join(_scalar(element, item) for item in items)
    except (struct.error, OverflowError, TypeError, UnicodeEncodeError) as error:
        raise GGUFError(f"an element cannot be written as {element.name}: {error}", key=key) from None


def _scalar_type(key: str, value: str | float | bool) -> GGUFValueType:
    if isinstance(value, str):
        return GGUFValueType.STRING
    if isinstance(value, bool):
        return GGUFValueType.BOOL
    if isinstance(value, float):
        return GGUFValueType.FLOAT32
    return _integer_type(key, value, value, GGUFValueType.UINT32, GGUFValueType.INT32)


def _integer_type(key: str, low: int, high: int, *preferred: GGUFValueType) -> GGUFValueType:
    for value_type in (*preferred, GGUFValueType.INT64, GGUFValueType.UINT64):
        bounds = np.iinfo(NUMPY_TYPES[value_type].name)
        if bounds.min <= low and high <= bounds.max:
            return value_type
    raise GGUFError(f"{low if low < 0 else high} fits no GGUF integer type", key=key)


def _element_type(key: str, dtype: np.dtype[Any]) -> GGUFValueType:
    for value_type, candidate in NUMPY_TYPES.items():
        if candidate == dtype:
            return value_type
    raise GGUFError(f"no GGUF element type holds a numpy {dtype} array", key=key)


def _common_type(key: str, values: Sequence[Any]) -> GGUFValueType:
    kinds = {type(item) for item in values}
    if kinds == {int}:
        return _integer_type(key, min(values), max(values), GGUFValueType.INT32)
    if kinds in ({str}, {bool}, {float}):
        return _scalar_type(key, values[0])
    names = sorted(kind.__name__ for kind in kinds)
    raise GGUFError(f"a sequence of {names or 'no elements'} has no one GGUF type; give a TypedValue", key=key)
