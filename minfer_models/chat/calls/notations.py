"""The notations that are known, and which of them a template writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from minfer_models.chat.calls.call import ToolCall
from minfer_models.chat.calls.cursor import Cursor, JsonScan, MoreNeededError, NotACallError
from minfer_models.chat.calls.deepseek import DeepSeek
from minfer_models.chat.calls.mistral import Mistral
from minfer_models.chat.calls.notation import Notation
from minfer_models.chat.calls.objects import Objects
from minfer_models.chat.calls.tagged import Tagged

Calls = Literal["tags", "mistral", "deepseek", "json", "none"]
"""How a model writes calls of tools, by name; "none" is no way that is known here."""

NOTATIONS: Final[Mapping[Calls, Notation]] = {
    "tags": Tagged(),
    "mistral": Mistral(),
    "deepseek": DeepSeek(),
    "json": Objects(),
}
"""In the order in which a template is asked: objects stand between tags, too."""


def notation_shown(text: str, call: ToolCall) -> Calls:
    """The notation in which `text`, a rendered conversation, shows this call: the first that reads it there."""
    for name, notation in NOTATIONS.items():
        if any(_reads(notation, text[start:], call) for start in _starts(notation, text)):
            return name
    return "none"


def _starts(notation: Notation, text: str) -> Iterator[int]:
    """Where calls may begin: behind markers, and at the braces of objects that stand bare."""
    yield from (found.end() for found in re.finditer(re.escape(notation.marker), text))
    if notation.bare:
        yield from (found.start() for found in re.finditer(r"\{", text))


def _reads(notation: Notation, text: str, call: ToolCall) -> bool:
    try:
        read = notation.block().next(Cursor(text, JsonScan()))
    except (MoreNeededError, NotACallError):
        return False
    return read is not None and (read.name, read.arguments) == (call.name, call.arguments)
