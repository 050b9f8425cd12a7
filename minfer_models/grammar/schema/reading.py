"""JSON text to values, keeping the order of properties, with one clear error for what isn't JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minfer_models.grammar.errors import GrammarError

MOST_CHARACTERS = 1 << 20


def read_schema(schema: str | Mapping[str, Any] | bool) -> Any:
    """A schema as plain JSON values, from its text or from values.

    Raises GrammarError for text that isn't JSON, with line and column, a name that an object has twice, values that
    JSON has no form for, and more than 1,048,576 characters.
    """
    text = schema if isinstance(schema, str) else _written(schema)
    if len(text) > MOST_CHARACTERS:
        raise GrammarError(f"JSON Schema: it has {len(text)} characters; at most {MOST_CHARACTERS} are read")
    try:
        read = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
        json.dumps(read, ensure_ascii=False).encode()
        return read
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        raise GrammarError(f"JSON Schema: a text in it has a lone surrogate, U+{code:04X}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise GrammarError(f"JSON Schema, {where}: this is no JSON: {error.msg}") from None
    except RecursionError:
        raise GrammarError("JSON Schema: it is nested too deeply") from None
    except GrammarError:
        raise
    except ValueError as error:  # an integer of more digits than Python converts
        raise GrammarError(f"JSON Schema: {error}") from None


def _written(schema: Any) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise GrammarError(f"JSON Schema: it can't be written as JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise GrammarError(f"JSON Schema: an object has {name!r} twice")
        found[name] = value
    return found


def _no_number(text: str) -> Any:
    raise GrammarError(f"JSON Schema: {text} is no JSON number")
