"""Paths within a schema: JSON pointers (RFC 6901) and local references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

Path: TypeAlias = tuple[str, ...]


def shown(path: Path) -> str:
    """The path as a JSON pointer; the whole schema is `#`."""
    return "#" + "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)


def resolve(root: Any, reference: Any) -> tuple[Path, str | None]:
    """The path that a `$ref` leads to, and what is wrong with it, if something is."""
    if not isinstance(reference, str):
        return (), f"{reference!r} is no reference"
    if not (reference == "#" or reference.startswith("#/")):
        return (), f"{reference!r} leads out of this schema; only # and #/... are followed"
    path = tuple(unquote(step).replace("~1", "/").replace("~0", "~") for step in reference.split("/")[1:])
    value = root
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return path, f"{reference!r} leads nowhere: there is no {step!r}"
    return path, None
