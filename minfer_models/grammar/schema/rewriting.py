"""A checked schema as the engine should read it: the same values, or fewer where it would let wrong ones through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minfer_models.grammar.schema.keywords import ANNOTATIONS
from minfer_models.grammar.schema.pointer import Path

_JOINED = {"$ref", "anyOf", "oneOf"}
_EXCLUSIVE = {"exclusiveMinimum": ("minimum", 1), "exclusiveMaximum": ("maximum", -1)}


def rewritten(value: Any, schemas: Mapping[Path, Any], moved_to: str = "#", path: Path = ()) -> Any:
    """The schema `value` at `path`, whose references lead to a copy of the whole at the pointer `moved_to`."""
    if isinstance(value, list):
        return [rewritten(item, schemas, moved_to, (*path, str(i))) for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    made = {name: rewritten(item, schemas, moved_to, (*path, name)) for name, item in value.items()}
    if path not in schemas:
        return made
    made = {name: item for name, item in made.items() if name not in ANNOTATIONS}
    if "$ref" in value:
        made["$ref"] = moved_to + value["$ref"][1:]
    return _with_inclusive_bounds(made) if _may_leak(made, schemas) else made


def _may_leak(schema: Mapping[str, Any], schemas: Mapping[Path, Any]) -> bool:
    """Whether llguidance 1.9.1 may let an excluded bound through: 12 where values are above 12 and below 12.5."""
    if schema.get("type") == "integer" or not any(name in schema for name in _EXCLUSIVE):
        return False
    low = [schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema]
    high = [schema[name] for name in ("maximum", "exclusiveMaximum") if name in schema]
    near = bool(low and high) and max(low) > min(high) - 1
    return near or any(_merges(other) for other in schemas.values())


def _merges(schema: Any) -> bool:
    """Whether the engine intersects the schema with others, so that a bound may meet one from elsewhere."""
    return isinstance(schema, Mapping) and ("allOf" in schema or (bool(_JOINED & schema.keys()) and len(schema) > 1))


def _with_inclusive_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Bounds a hair inside those that exclude."""
    made = dict(schema)
    for exclusive, (inclusive, sign) in _EXCLUSIVE.items():
        if exclusive in made:
            bound = made.pop(exclusive)
            inside = bound + sign * max(1e-9, abs(bound) * 4e-15)
            stricter = max if sign > 0 else min
            made[inclusive] = stricter(made[inclusive], inside) if inclusive in made else inside
    return made
