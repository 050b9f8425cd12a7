"""From a schema to the engine's notation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.schema.checks import checked_schemas
from minfer_models.grammar.schema.endings import check_endings
from minfer_models.grammar.schema.pointer import Path, shown
from minfer_models.grammar.schema.reading import read_schema
from minfer_models.grammar.schema.rewriting import rewritten

# One space, or one line break with its indentation: without a bound a model can go on with blanks for ever.
_BLANKS = r"(\x20|\n[\x20\x09]{0,40})"
_MOST_TRIES = 200
_ONE_OF = "oneOf can't be enforced here: a value could match several of its schemas; write anyOf, or make them differ"
_WHOLE = ("$defs", "whole")


def schema_lark(schema: str | Mapping[str, Any] | bool, refusal: Callable[[str], str | None]) -> str:
    """The grammar of a schema's values: properties in its order, bounded whitespace.

    `refusal` says why the engine doesn't take a grammar, None when it does. Raises GrammarError with the path of what
    can't be honoured.
    """
    root = read_schema(schema)
    schemas = checked_schemas(root)
    check_endings(schemas)
    grammar = _lark(rewritten(root, schemas))
    reason = refusal(grammar)
    if reason is not None:
        path, nearer = _located(root, schemas, refusal) or ((), reason)
        raise GrammarError(f"JSON Schema, {shown(path)}: {_plain(nearer)}")
    return grammar


def _lark(root: Any) -> str:
    body = root if isinstance(root, Mapping) else ({} if root else {"enum": []})
    return f"start: %json {json.dumps({**body, 'x-guidance': {'whitespace_pattern': _BLANKS}})}\n"


def _located(root: Any, schemas: Mapping[Path, Any], refusal: Callable[[str], str | None]) -> tuple[Path, str] | None:
    """The deepest schema that the engine refuses also alone, with its reason."""
    whole = rewritten(root, schemas, shown(_WHOLE))
    tries = [path for path in schemas if path and isinstance(schemas[path], Mapping)]
    tries.sort(key=lambda path: ("$ref" in schemas[path], -len(path)))
    for path in tries[:_MOST_TRIES]:
        reason = refusal(_lark({_WHOLE[0]: {_WHOLE[1]: whole}, "$ref": quote(shown((*_WHOLE, *path)), safe="#/~")}))
        if reason is not None:
            return path, reason
    return None


def _plain(reason: str) -> str:
    """The engine's reason without its place in the text that we wrote."""
    plain = reason.partition("failed to compile JSON schema: ")[2] or reason
    return _ONE_OF if plain.startswith("oneOf constraints are not supported") else plain
