"""Values of a config.json, each of the type that is asked for or refused with its key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minfer_models.convert.errors import ConvertError

MAX_SIZE = 1 << 31


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """An object of the file `path`. A key that is absent or null has the default; without one that's an error."""

    values: Mapping[str, Any]
    path: Path
    within: str = ""

    def size(self, key: str, default: int | None = None) -> int:
        """A positive count."""
        value = self._value(key, default)
        if type(value) is not int or not 0 < value < MAX_SIZE:
            raise self.error(key, f"is {value!r:.80}, expected a positive count")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise self.error(key, f"is {value!r:.80}, expected a number")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"is {value!r:.80}, expected true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"is {value!r:.80}, expected a string")
        return value

    def inner(self, key: str) -> ConfigReader:
        """The object under `key`, an empty one where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(key, f"is {value!r:.80}, expected an object")
        return ConfigReader(value or {}, self.path, f"{self.within}{key}.")

    def error(self, key: str, message: str) -> ConvertError:
        """An error about `key`."""
        return ConvertError(message, path=self.path, key=self.within + key)

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.error(key, "is missing")
        return default


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
