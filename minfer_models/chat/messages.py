"""Chat messages as OpenAI clients send them, checked and made ready for a template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from minfer_models.chat.environment import traced
from minfer_models.chat.errors import ChatTemplateError

# A role of this form cannot hold a marker, and some templates build markers around it: '<|' + role + '|>'.
_PLAIN_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")


def prepared(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy for the template: text marked as the user's, tool call arguments parsed from JSON into objects.

    Raises ChatTemplateError naming the message that has no role, or arguments that are no JSON object.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise ChatTemplateError(f"messages is a {type(messages).__name__}, not a list of messages")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ChatTemplateError(f"{place} is a {type(message).__name__}, not a message with role and content")
    role = message.get("role")
    if not isinstance(role, str):
        raise ChatTemplateError(f"{place}.role is {role!r}, not a string")
    copy = traced(message, place)
    if _PLAIN_ROLE.fullmatch(role):
        copy["role"] = role
    for i, call in enumerate(copy.get("tool_calls") or ()):
        _parse_arguments(call, f"{place}.tool_calls[{i}]")
    return copy


def _parse_arguments(call: Any, place: str) -> None:
    if not isinstance(call, dict):
        raise ChatTemplateError(f"{place} is {call!r}, not a tool call")
    function = call.get("function", call)
    if isinstance(function, dict) and "arguments" in function:
        function["arguments"] = _arguments(function["arguments"], f"{place}.function.arguments")


def _arguments(value: Any, place: str) -> dict[str, Any]:
    """OpenAI sends arguments as JSON text, templates want an object; none at all is an empty object."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ChatTemplateError(f"{place} is not JSON ({error}): {value!r}") from None
    if not isinstance(value, dict):
        raise ChatTemplateError(f"{place} is {value!r}, not a JSON object")
    return traced(value, place)
