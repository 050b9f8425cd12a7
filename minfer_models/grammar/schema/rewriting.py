"""A checked schema as the engine should read it: the same values, or fewer where it would let wrong ones through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minfer_models.grammar.schema.pointer import Path

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
    if "$ref" in value:
        made["$ref"] = moved_to + value["$ref"][1:]
    return made if value.get("type") == "integer" else _with_inclusive_bounds(made)


def _with_inclusive_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Bounds a hair inside those that exclude: llguidance 1.9.1 lets 12 through above an excluded 12 and below 12.5."""
    made = dict(schema)
    for exclusive, (inclusive, sign) in _EXCLUSIVE.items():
        if exclusive in made:
            bound = made.pop(exclusive)
            inside = bound + sign * max(1e-9, abs(bound) * 4e-15)
            stricter = max if sign > 0 else min
            made[inclusive] = stricter(made[inclusive], inside) if inclusive in made else inside
    return made
