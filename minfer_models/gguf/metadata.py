"""The metadata of a file: typed values by key, and accessors that refuse the wrong type."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minfer_models.gguf.constants import GGUFValueType
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.strings import StringArray

Value = int | float | bool | str | NDArray[np.generic] | StringArray

INTEGERS = frozenset(
    {
        GGUFValueType.UINT8,
        GGUFValueType.INT8,
        GGUFValueType.UINT16,
        GGUFValueType.INT16,
        GGUFValueType.UINT32,
        GGUFValueType.INT32,
        GGUFValueType.UINT64,
        GGUFValueType.INT64,
    }
)
FLOATS = frozenset({GGUFValueType.FLOAT32, GGUFValueType.FLOAT64})


@dataclass(frozen=True, slots=True, eq=False)
class TypedValue:
    """A value with its GGUF type; `element` is the element type of an ARRAY, `offset` where it was read."""

    type: GGUFValueType
    value: Value
    element: GGUFValueType | None = None
    offset: int | None = None

    @property
    def type_name(self) -> str:
        """The type in words: `UINT32`, `ARRAY of STRING`."""
        return self.type.name if self.element is None else f"ARRAY of {self.element.name}"


class Metadata(Mapping[str, Value]):
    """Values by key, in file order: int, float, bool, str, numpy arrays (read-only) and `StringArray`.

    The accessors (`string`, `integer`, ... `integers`) return the value when it is there and of that type. A key that
    is absent gives `default`, or a GGUFError when there is none; a value of another type is always a GGUFError
    naming the key, the type found and the value. No accessor converts: an integer key stored as FLOAT32 is an error.
    """

    def __init__(self, entries: Mapping[str, TypedValue], path: Path | None = None) -> None:
        self._entries = dict(entries)
        self.path = path

    def __getitem__(self, key: str) -> Value:
        return self._entries[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def typed(self, key: str) -> TypedValue:
        """The value with its GGUF type; KeyError when absent."""
        return self._entries[key]

    def typed_items(self) -> list[tuple[str, TypedValue]]:
        """Every key with its typed value, in file order: what the writer takes."""
        return list(self._entries.items())

    def string(self, key: str, default: str | None = None) -> str:
        """A STRING."""
        value = self._scalar(key, default, frozenset({GGUFValueType.STRING}), "a string")
        assert isinstance(value, str)
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer of any width."""
        value = self._scalar(key, default, INTEGERS, "an integer")
        assert isinstance(value, int)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A FLOAT32 or FLOAT64."""
        value = self._scalar(key, default, FLOATS, "a float")
        assert isinstance(value, (int, float))
        return float(value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """A BOOL."""
        value = self._scalar(key, default, frozenset({GGUFValueType.BOOL}), "a bool")
        assert isinstance(value, bool)
        return value

    def strings(self, key: str, default: list[str] | None = None) -> list[str]:
        """An ARRAY of STRING."""
        value = self._array(key, frozenset({GGUFValueType.STRING}), "an array of strings", default is None)
        return default or [] if value is None else list(value)  # type: ignore[arg-type]

    def integers(self, key: str, default: list[int] | None = None) -> list[int]:
        """An ARRAY of integers of one width."""
        value = self._array(key, INTEGERS, "an array of integers", default is None)
        return default or [] if value is None else np.asarray(value).tolist()

    def numbers(self, key: str, default: list[float] | None = None) -> list[float]:
        """An ARRAY of FLOAT32 or FLOAT64."""
        value = self._array(key, FLOATS, "an array of floats", default is None)
        return default or [] if value is None else np.asarray(value).tolist()

    def booleans(self, key: str, default: list[bool] | None = None) -> list[bool]:
        """An ARRAY of BOOL."""
        value = self._array(key, frozenset({GGUFValueType.BOOL}), "an array of bools", default is None)
        return default or [] if value is None else np.asarray(value).tolist()

    def error(self, key: str, message: str) -> GGUFError:
        """An error about `key`, with its place when it is in the file: for the layers that judge values."""
        entry = self._entries.get(key)
        return GGUFError(message, path=self.path, key=key, offset=None if entry is None else entry.offset)

    def _scalar(
        self, key: str, default: str | float | bool | None, types: frozenset[GGUFValueType], wanted: str
    ) -> Value:
        entry = self._entries.get(key)
        if entry is None:
            if default is None:
                raise self.error(key, f"missing from the metadata ({wanted} is required)")
            return default
        if entry.type not in types:
            raise self._wrong_type(key, entry, wanted)
        return entry.value

    def _array(self, key: str, elements: frozenset[GGUFValueType], wanted: str, required: bool) -> Value | None:
        entry = self._entries.get(key)
        if entry is None:
            if required:
                raise self.error(key, f"missing from the metadata ({wanted} is required)")
            return None
        if entry.element not in elements:
            raise self._wrong_type(key, entry, wanted)
        return entry.value

    def _wrong_type(self, key: str, entry: TypedValue, wanted: str) -> GGUFError:
        return self.error(key, f"expected {wanted}, found {entry.type_name} {reprlib.repr(entry.value)}")
