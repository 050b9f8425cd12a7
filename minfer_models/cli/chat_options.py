"""Options of every command that talks through a chat template. Nothing heavy is imported here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

ChatTemplateName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--chat-template", metavar="FILE|NAME", help="Another chat template: a Jinja file, or one of the model's names."
    ),
]
ChatArguments: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--chat-arg",
        metavar="KEY=VALUE",
        help="An argument of the template; VALUE is JSON, else text: enable_thinking=false. Repeatable.",
    ),
]


def chat_arguments(given: list[str] | None) -> dict[str, Any]:
    """`--chat-arg` values by key. Raises BadParameter for what isn't KEY=VALUE, and for a key given twice."""
    arguments: dict[str, Any] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise typer.BadParameter(f"--chat-arg is {text!r}, expected KEY=VALUE such as enable_thinking=false")
        if key in arguments:
            raise typer.BadParameter(f"--chat-arg {key} is given twice: {arguments[key]!r} and {value!r}")
        arguments[key] = _value(value)
    return arguments


def _value(text: str) -> Any:
    """JSON, or the text itself where it isn't any: `reasoning_effort=high` needs no quotes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def chat_template_source(name: str | None) -> str | Path | None:
    """What `minfer_models.load(chat_template=...)` takes: the file where there is one, else the name as it is."""
    if name is None:
        return None
    path = Path(name)
    if path.exists():
        return path
    if path.suffix or len(path.parts) > 1:
        raise typer.BadParameter(f"--chat-template {name}: there is no such file")
    return name
