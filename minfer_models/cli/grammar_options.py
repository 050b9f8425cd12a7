"""Options that bind what a model writes: `--grammar`, `--json-schema`. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from minfer_models.cli.groups import OptionGroup, option
from minfer_models.text_input import read_utf8

MOST_BYTES = 4 << 20
"""Of a grammar or schema in a file: more than the characters that are read of one."""

GrammarText: TypeAlias = Annotated[
    str | None,
    typer.Option("--grammar", metavar="FILE|TEXT", help="Bind the text by a grammar in GBNF, llama.cpp's notation."),
]
JsonSchema: TypeAlias = Annotated[
    str | None,
    typer.Option("--json-schema", metavar="FILE|JSON", help="Bind the text to JSON that is valid under this schema."),
]
GrammarAfterThinking: TypeAlias = Annotated[
    bool,
    typer.Option("--grammar-after-thinking", help="Let a <think> block come before what is bound."),
]


def grammar_request(grammar: str | None, json_schema: str | None, after_thinking: bool) -> dict[str, Any]:
    """What `LLM.generate` takes for the options, checked as far as that goes without a model.

    Raises BadParameter for both at once, a file that isn't there, and what can't be enforced.
    """
    if grammar is not None and json_schema is not None:
        raise typer.BadParameter("give --grammar or --json-schema, not both")
    if after_thinking and grammar is None and json_schema is None:
        raise typer.BadParameter("--grammar-after-thinking needs --grammar or --json-schema")
    if grammar is not None:
        text = _text("--grammar", grammar, "::=" in grammar)
        _check(text, is_schema=False)
        return {"grammar": text, "after_thinking": after_thinking}
    if json_schema is not None:
        text = _text("--json-schema", json_schema, _is_schema(json_schema))
        _check(text, is_schema=True)
        return {"json_schema": text, "after_thinking": after_thinking}
    return {}


def _text(flag: str, given: str, is_text: bool) -> str:
    """The text itself, or that of the file."""
    if is_text:
        return given
    if not given:
        raise typer.BadParameter(f"{flag} is empty")
    try:
        with Path(given).open("rb") as file:
            return read_utf8(file, f"{flag} {given}", "it", MOST_BYTES)
    except OSError as error:
        raise typer.BadParameter(f"{flag} {given}: {error.strerror}") from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _is_schema(given: str) -> bool:
    return given.lstrip().startswith("{") or given.strip() in ("true", "false")


def _check(text: str, is_schema: bool) -> None:
    from minfer_models.grammar import GrammarError, check_gbnf, check_json_schema

    try:
        check_json_schema(text) if is_schema else check_gbnf(text)
    except GrammarError as error:
        raise typer.BadParameter(str(error)) from None


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    return grammar_request(given["grammar"], given["json_schema"], given["grammar_after_thinking"])


GRAMMAR = OptionGroup(
    "bound",
    (
        option("grammar", GrammarText, None),
        option("json_schema", JsonSchema, None),
        option("grammar_after_thinking", GrammarAfterThinking, False),
    ),
    _read,
)
"""A command's parameter `bound`: what binds its text, as keyword arguments of `LLM.generate`."""
