"""Chat messages as OpenAI clients send them, checked and made ready for a template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from minfer_models.chat.content import ContentRules, joined_parts, text_parts
from minfer_models.chat.environment import traced
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.traced import TracedStr

# A role of this form cannot hold a marker, and some templates build markers around it: '<|' + role + '|>'.
_PLAIN_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of an answer's reasoning in a message, the one that most templates read first."""


def prepared(messages: Sequence[Mapping[str, Any]], rules: ContentRules | None = None) -> list[dict[str, Any]]:
    """A copy for the template: text marked as the user's, tool call arguments parsed from JSON into objects, or checked
    and in JSON where the template wants text.

    As `transformers` does, keys whose value is null are left out, and reasoning is there under all of its names.
    rules: how this template takes content; None hands it on as it is.

    Raises ChatTemplateError naming the message that has no role, arguments that are no JSON object, or content that
    the template cannot take.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise ChatTemplateError(f"messages is a {type(messages).__name__}, not a list of messages")
    copies = [_message(message, f"messages[{i}]", rules) for i, message in enumerate(messages)]
    calls = any(message.get("tool_calls") for message in copies)
    return _with_ids(copies) if calls and rules is not None and rules.calls.with_ids else copies


def _message(message: Mapping[str, Any], place: str, rules: ContentRules | None) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ChatTemplateError(f"{place} is a {type(message).__name__}, not a message with role and content")
    role = message.get("role")
    if not isinstance(role, str):
        raise ChatTemplateError(f"{place}.role is {role!r}, not a string")
    copy = traced(message, place)
    if _PLAIN_ROLE.fullmatch(role):
        copy["role"] = role
    if rules is not None:
        copy = _with_content(copy, role, place, rules)
        copy = _with_reasoning(copy)
        for i, call in enumerate(copy.get("tool_calls") or ()):
            _with_arguments(call, f"{place}.tool_calls[{i}]", rules)
    return copy


def _with_content(message: dict[str, Any], role: str, place: str, rules: ContentRules) -> dict[str, Any]:
    """Content as the template takes it; other keys that are null are left out."""
    content = message.get("content")
    if content is None and role == "assistant" and rules.null != "absent":
        message["content"] = None if rules.null == "null" else TracedStr("")
        return {key: value for key, value in message.items() if value is not None or key == "content"}
    if isinstance(content, list) and not rules.takes(role, parts=True):
        message["content"] = TracedStr(joined_parts(content, f"{place}.content"))
    elif isinstance(content, str) and not rules.takes(role, parts=False) and rules.takes(role, parts=True):
        message["content"] = [{**part, "text": content} for part in text_parts("")]
    return {key: value for key, value in message.items() if value is not None}


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    reasoning = next((message[name] for name in REASONING if message.get(name) is not None), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _with_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ids for calls that have none, for a template that insists on them; results belong to the calls in their order."""
    number, open_ids = 0, []
    for message in messages:
        calls = message.get("tool_calls")
        if calls:
            open_ids = []
        for call in calls or ():
            number += 1
            call["id"] = call.get("id") or TracedStr(f"{number:09}")
            open_ids.append(call["id"])
        if message["role"] == "tool" and open_ids:
            message.setdefault("tool_call_id", open_ids.pop(0))
    return messages


def _with_arguments(call: Any, place: str, rules: ContentRules) -> None:
    if not isinstance(call, dict):
        raise ChatTemplateError(f"{place} is {call!r}, not a tool call")
    function = call.get("function", call)
    if not isinstance(function, dict) or "arguments" not in function:
        return
    given = function["arguments"]
    function["arguments"] = parsed = _arguments(given, f"{place}.function.arguments")
    if rules.calls.as_text:
        written = isinstance(given, str) and given
        function["arguments"] = given if written else TracedStr(json.dumps(parsed, ensure_ascii=False))


def _arguments(value: Any, place: str) -> dict[str, Any]:
    """OpenAI sends arguments as JSON text, templates want an object; none at all is an empty object."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ChatTemplateError(f"{place} is not JSON ({error}): {value!r}") from None
        except RecursionError:
            raise ChatTemplateError(f"{place} is JSON nested too deep: {len(value)} characters") from None
    if not isinstance(value, dict):
        raise ChatTemplateError(f"{place} is {value!r}, not a JSON object")
    return traced(value, place)
