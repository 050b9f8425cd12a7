"""Options of every command that talks through a chat template. Nothing heavy is imported here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from minfer_models.cli.groups import OptionGroup, option

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


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """The two options as they were given; asked for what they mean, they are checked."""

    name: str | None
    pairs: list[str] | None

    @property
    def source(self) -> str | Path | None:
        """What `minfer_models.load(chat_template=...)` takes. Raises BadParameter for a file that isn't there."""
        return _source(self.name)

    @property
    def arguments(self) -> dict[str, Any]:
        """The template's arguments. Raises BadParameter for what isn't KEY=VALUE, and for a key given twice."""
        return _arguments(self.pairs)


def _arguments(given: list[str] | None) -> dict[str, Any]:
    """`--chat-arg` values by key."""
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


def _source(name: str | None) -> str | Path | None:
    """The file where there is one, else the name as it is."""
    if name is None:
        return None
    path = Path(name)
    if path.exists():
        return path
    if path.suffix or len(path.parts) > 1:
        raise typer.BadParameter(f"--chat-template {name}: there is no such file")
    return name


def _read(given: Mapping[str, Any]) -> TemplateChoice:
    return TemplateChoice(given["chat_template"], given["chat_arg"])


TEMPLATE = OptionGroup(
    "template", (option("chat_template", ChatTemplateName, None), option("chat_arg", ChatArguments, None)), _read
)
"""A command's parameter `template`, a TemplateChoice."""
