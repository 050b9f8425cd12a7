"""Which schemas have a finite value at all: one that always needs itself again never ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.schema.pointer import Path, resolve, shown


def check_endings(schemas: Mapping[Path, Any]) -> None:
    """Raise GrammarError for a schema whose values never end, as where an object requires one of its own kind."""
    least = _fixed_point(schemas, False)
    greatest = _fixed_point(schemas, True)
    endless = [path for path in schemas if greatest[path] and not least[path]]
    if endless:
        path = min(endless, key=lambda path: ("$ref" in schemas[path], len(path)))
        raise GrammarError(f"JSON Schema, {shown(path)}: its values never end: each one needs another of its own kind")


def _fixed_point(schemas: Mapping[Path, Any], start: bool) -> dict[Path, bool]:
    """Whether each schema has a value, from the assumption that none (or all) of those that it needs have one."""
    known = dict.fromkeys(schemas, start)
    changed = True
    while changed:
        changed = False
        for path, schema in schemas.items():
            if known[path] == start and _has_value(schemas[()], path, schema, known) != start:
                known[path] = not start
                changed = True
    return known


def _has_value(root: Any, path: Path, schema: Any, known: Mapping[Path, bool]) -> bool:
    """Conditions that are necessary: the engine finds what else contradicts itself."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not known[resolve(root, schema["$ref"])[0]]:
        return False
    if not all(known[*path, "allOf", str(i)] for i in range(len(schema.get("allOf", ())))):
        return False
    for choice in ("anyOf", "oneOf"):
        if choice in schema and not any(known[*path, choice, str(i)] for i in range(len(schema[choice]))):
            return False
    types = schema.get("type", "string")
    names = {types} if isinstance(types, str) else set(types)
    return (
        bool(names - {"object", "array"})
        or ("object" in names and _object_ends(path, schema, known))
        or ("array" in names and _array_ends(path, schema, known))
    )


def _object_ends(path: Path, schema: Mapping[str, Any], known: Mapping[Path, bool]) -> bool:
    return all(known.get((*path, "properties", name), True) for name in schema.get("required", ()))


def _array_ends(path: Path, schema: Mapping[str, Any], known: Mapping[Path, bool]) -> bool:
    least, first = schema.get("minItems", 0), len(schema.get("prefixItems", ()))
    needed = all(known[*path, "prefixItems", str(i)] for i in range(min(least, first)))
    return needed and (least <= first or known.get((*path, "items"), True))
