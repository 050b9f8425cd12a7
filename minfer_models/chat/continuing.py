"""Prompts that end inside the final message, for the model to go on with it: as `transformers` makes them."""

from __future__ import annotations

from typing import Any

from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.traced import TracedStr

_MARK = "CONTINUE_FINAL_MESSAGE_TAG "
"""The blank at its end tells whether the template trims content."""


def with_mark(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, the final one's content ending in a mark. Raises ChatTemplateError when it holds no text."""
    if not messages:
        raise ChatTemplateError("continue_final_message: there are no messages")
    final = messages[-1]
    content = final.get("content")
    if isinstance(content, str):
        return [*messages[:-1], {**final, "content": content + TracedStr(_MARK)}]
    parts = list(content) if isinstance(content, list) else []
    last = _last_text(parts)
    if last is None:
        place = f"messages[{len(messages) - 1}]"
        raise ChatTemplateError(f"continue_final_message: {place} has no text in its content to go on with")
    parts[last] = {**parts[last], "text": parts[last]["text"] + TracedStr(_MARK)}
    return [*messages[:-1], {**final, "content": parts}]


def cut_behind_final(text: TracedStr, final: dict[str, Any]) -> TracedStr:
    """The prompt up to the mark. Raises ChatTemplateError when the template changed or dropped the content."""
    content = final["content"]
    if isinstance(content, list):
        last = _last_text(content)
        content = "" if last is None else content[last]["text"]
    at = text.rfind(_MARK.strip())
    if at < 0 or content.strip() not in text:
        raise ChatTemplateError(
            "continue_final_message: the chat template changes or drops the final message's content"
        )
    if text.startswith(_MARK, at):
        return text[:at]
    return text[:at].rstrip()


def _last_text(parts: list[Any]) -> int | None:
    found = [i for i, part in enumerate(parts) if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return found[-1] if found else None
