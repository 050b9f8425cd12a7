"""A schema keyword by keyword: what can't be honoured is refused with its path, and nothing is ignored."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.schema.keywords import (
    ANNOTATIONS,
    COUNTS,
    FORMATS,
    HONOURED,
    INSTEAD,
    NUMBERS,
    ONE_SCHEMA,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    TYPES,
)
from minfer_models.grammar.schema.patterns import check_pattern
from minfer_models.grammar.schema.pointer import Path, resolve, shown

MOST_SCHEMAS = 10_000
MOST_DEPTH = 50
MOST_COUNT = 100_000


def checked_schemas(root: Any) -> dict[Path, Any]:
    """Every schema in `root` by its path, `root` itself at (), each checked.

    Raises GrammarError with the JSON pointer of the first keyword or value that can't be honoured.
    """
    found: dict[Path, Any] = {}
    waiting: list[tuple[Path, Any]] = [((), root)]
    while waiting:
        path, schema = waiting.pop()
        found[path] = schema
        if len(found) > MOST_SCHEMAS:
            raise GrammarError(f"JSON Schema: it has more than {MOST_SCHEMAS} schemas")
        if len(path) > 2 * MOST_DEPTH:
            raise GrammarError(f"JSON Schema, {shown(path)}: it is nested too deeply")
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, Mapping):
            raise GrammarError(f"JSON Schema, {shown(path)}: {_short(schema)} is no schema: an object, true or false")
        _check(root, path, schema)
        waiting += list(below(path, schema))[::-1]
    for path, schema in found.items():
        if isinstance(schema, Mapping) and "$ref" in schema and resolve(root, schema["$ref"])[0] not in found:
            raise GrammarError(f"JSON Schema, {shown((*path, '$ref'))}: {schema['$ref']!r} leads to no schema")
    return found


def below(path: Path, schema: Any) -> Iterator[tuple[Path, Any]]:
    """The schemas right below a checked one, each with its path."""
    for keyword, value in schema.items() if isinstance(schema, Mapping) else ():
        if keyword in ONE_SCHEMA:
            yield (*path, keyword), value
        elif keyword in SCHEMA_LISTS:
            yield from (((*path, keyword, str(i)), item) for i, item in enumerate(value))
        elif keyword in SCHEMA_MAPS:
            yield from (((*path, keyword, name), item) for name, item in value.items())


def _check(root: Any, path: Path, schema: Mapping[str, Any]) -> None:
    for keyword, value in schema.items():
        here = (*path, keyword)
        if keyword == "uniqueItems" and value is False:
            continue
        if keyword not in HONOURED | ANNOTATIONS:
            raise GrammarError(_refusal(here))
        reason = _wrong(root, here, value)
        if reason is not None:
            raise GrammarError(f"JSON Schema, {shown(here)}: {reason}")
    least, required = schema.get("minProperties", 0), len(schema.get("required", ()))
    if least > required + 1:
        raise GrammarError(
            f"JSON Schema, {shown((*path, 'minProperties'))}: {least} can't be enforced: beyond the {required} "
            "required properties and one more, the same name could come twice"
        )


def _refusal(path: Path) -> str:
    keyword = path[-1]
    near = difflib.get_close_matches(keyword, HONOURED, 1, 0.8)
    hint = INSTEAD.get(keyword) or (f"did you mean {near[0]}?" if near else None)
    supported = ", ".join(sorted(HONOURED))
    return (
        f"JSON Schema, {shown(path)}: the keyword {keyword!r} can't be enforced"
        f"{f' ({hint})' if hint else ''}; supported are {supported}"
    )


def _wrong(root: Any, path: Path, value: Any) -> str | None:
    """What is wrong with a keyword's value, None if nothing is."""
    keyword = path[-1]
    if keyword == "$ref":
        return resolve(root, value)[1]
    if keyword == "items" and isinstance(value, list):
        return "a list of schemas is called prefixItems"
    if keyword in NUMBERS:
        return _wrong_number(keyword, value)
    if keyword in SCHEMA_MAPS:
        return _wrong_map(keyword, value)
    wrong = _SPECIAL.get(keyword)
    return None if wrong is None else wrong(value)


def _wrong_count(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return f"{_short(value)} is no whole number from 0"
    return f"{value} is more than {MOST_COUNT}" if value > MOST_COUNT else None


def _wrong_number(keyword: str, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{_short(value)} is no number"
    if keyword == "multipleOf" and value <= 0:
        return f"{value} isn't above 0"
    return None if abs(value) < 1e15 else f"{value} is beyond 1e15"


def _wrong_map(keyword: str, value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"{_short(value)} is no object of schemas"
    if keyword == "patternProperties":
        for pattern in value:
            reason = check_pattern(pattern)
            if reason is not None:
                return reason
    return None


def _wrong_type(value: Any) -> str | None:
    names = value if isinstance(value, list) else [value]
    if not names or any(name not in TYPES for name in names if isinstance(name, str)):
        return f"{_short(value)} is no type; there are {', '.join(TYPES)}"
    return None if all(isinstance(name, str) for name in names) else f"{_short(value)} is no name or list of names"


def _wrong_list(value: Any) -> str | None:
    return None if isinstance(value, list) and value else f"{_short(value)} is no list of schemas"


def _wrong_enum(value: Any) -> str | None:
    return None if isinstance(value, list) and value else f"{_short(value)} is no list of values"


def _wrong_names(value: Any) -> str | None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return f"{_short(value)} is no list of names"
    return None if len(set(value)) == len(value) else f"{_short(value)} has a name twice"


def _wrong_format(value: Any) -> str | None:
    return None if value in FORMATS else f"{_short(value)} can't be enforced; supported are {', '.join(FORMATS)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_SPECIAL: Final[Mapping[str, Callable[[Any], str | None]]] = {
    **dict.fromkeys(COUNTS, _wrong_count),
    **dict.fromkeys(SCHEMA_LISTS, _wrong_list),
    "type": _wrong_type,
    "enum": _wrong_enum,
    "required": _wrong_names,
    "format": _wrong_format,
    "pattern": check_pattern,
}
