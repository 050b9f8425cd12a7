"""A call of a tool, and the JSON that states one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `id` is what it calls it by, "" where its notation has no names for calls."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""

    def as_message(self) -> dict[str, Any]:
        """As an entry of a message's `tool_calls`."""
        named = {"id": self.id} if self.id else {}
        return {**named, "type": "function", "function": {"name": self.name, "arguments": dict(self.arguments)}}


def call_from(text: str) -> ToolCall | None:
    """The call that a JSON object states by `name` and `arguments` or `parameters`; None for anything else."""
    stated = json_object(text)
    if stated is None or not isinstance(stated.get("name"), str) or not stated["name"]:
        return None
    arguments = stated.get("arguments", stated.get("parameters"))
    if arguments is None:
        arguments = {}
    name = stated.get("id")
    return ToolCall(stated["name"], arguments, name if isinstance(name, str) else "") if _is_object(arguments) else None


def json_object(text: str) -> dict[str, Any] | None:
    """The object that `text` is in JSON, None for anything else, and for texts that no tokenizer could write again."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if _is_object(value) else None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
