"""JSON from a folder that nobody vouches for: an object without repeated keys, of bounded size and depth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from minfer_models.convert.errors import ConvertError

MAX_BYTES = 1 << 26
"""The largest real tokenizer.json has 33 MB."""


def read_object(path: Path) -> dict[str, Any]:
    """The object in the file `path`; raises ConvertError when it's missing, too large or not one JSON object."""
    if not path.is_file():
        raise ConvertError("is missing" if not path.exists() else "not a regular file", path=path)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ConvertError(f"has {size} bytes, more than the {MAX_BYTES} that are read as JSON", path=path)
    return parse_object(path.read_bytes(), path)


def read_optional(path: Path) -> dict[str, Any]:
    """`read_object`, or nothing where there is no such file."""
    return read_object(path) if path.exists() else {}


def parse_object(raw: bytes, path: Path, what: str = "the file") -> dict[str, Any]:
    """`raw` as one JSON object; raises ConvertError saying what is wrong with `what`, and where."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ConvertError(f"{what} is not UTF-8 at byte {error.start}", path=path) from None
    except RecursionError:
        raise ConvertError(f"{what} is nested too deeply to be read", path=path) from None
    except ValueError as error:  # of json, of a repeated key, of a number with thousands of digits
        raise ConvertError(f"{what} is not the JSON that is expected: {error}", path=path) from None
    if not isinstance(value, dict):
        raise ConvertError(f"{what} is a JSON {type(value).__name__}, not an object", path=path)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"key {key!r:.200} appears twice")
        seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
