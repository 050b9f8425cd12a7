"""What one template takes as content: texts, lists of parts, null. Found out by rendering small conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from minfer_models.chat.errors import ChatTemplateError

Message = dict[str, Any]
Content = str | list[dict[str, str]] | None
NullContent = Literal["absent", "null", "empty"]

NEEDLE = "wxyzzy"
"""Content of the conversations that are tried: no template writes it by itself."""
_CALL: Message = {
    "id": "abcdefghi",  # some templates insist on nine characters
    "type": "function",
    "function": {"name": NEEDLE, "arguments": {"a": 1}},
}


class ContentRules:
    """How content is handed to one template, asked by role; every answer is found once."""

    def __init__(self, render: Callable[[list[Message]], str]) -> None:
        """render: the text of messages as they are; raises ChatTemplateError where the template can't."""
        self._render = render
        self._takes: dict[tuple[str, bool], bool] = {}
        self._null: NullContent | None = None

    def takes(self, role: str, parts: bool) -> bool:
        """Whether content of messages of this role may be a list of text parts, or else a text."""
        key = (role, parts)
        if key not in self._takes:
            content: Content = text_parts(NEEDLE) if parts else NEEDLE
            self._takes[key] = any(map(self._shows, with_system(conversation(role, content))))
        return self._takes[key]

    @property
    def null(self) -> NullContent:
        """How a message of the assistant without content is handed on.

        `transformers` leaves the key out; where the template fails or loses the tool calls over that, it's null, and
        where it can't take that either an empty text.
        """
        if self._null is None:
            self._null = self._found_null()
        return self._null

    def _found_null(self) -> NullContent:
        ways: tuple[NullContent, ...] = ("absent", "null", "empty")
        for way in ways:
            if any(map(self._shows, _calling(way))):
                return way
        return "absent"

    def _shows(self, messages: list[Message]) -> bool:
        try:
            text = self._render(messages)
        except ChatTemplateError:
            return False
        return NEEDLE in text and f"'{NEEDLE}'" not in text and "'text'" not in text and '"text"' not in text


def conversation(role: str, content: Content) -> list[Message]:
    """The shortest one with a message of `role` that holds `content`."""
    user = {"role": "user", "content": "a"}
    asked = {"role": "assistant", "content": "", "tool_calls": [_CALL | {"function": {"name": "f", "arguments": {}}}]}
    message = {"role": role, "content": content}
    if role == "system":
        return [message, user]
    if role == "tool":
        return [user, asked, {**message, "tool_call_id": _CALL["id"], "name": "f"}]
    return [message] if role == "user" else [user, message, user]


def with_system(messages: list[Message]) -> list[list[Message]]:
    """The conversation, and the same behind a system message, which some templates ask for."""
    return [messages, [{"role": "system", "content": "a"}, *messages]]


def _calling(way: NullContent) -> Sequence[list[Message]]:
    message: Message = {"role": "assistant", "tool_calls": [_CALL]}
    if way != "absent":
        message = {"role": "assistant", "content": None if way == "null" else "", "tool_calls": [_CALL]}
    answer = {"role": "tool", "tool_call_id": _CALL["id"], "name": NEEDLE, "content": "a"}
    return with_system([{"role": "user", "content": "a"}, message, answer])


def call_conversation() -> list[Message]:
    """A question and a call of the function NEEDLE."""
    return [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [_CALL]}]


def text_parts(text: str) -> list[dict[str, str]]:
    """A text as a list of one part, as OpenAI writes it."""
    return [{"type": "text", "text": text}]


def joined_parts(parts: Sequence[Any], place: str) -> str:
    """The texts of parts, a line each. Raises ChatTemplateError for a part that is no text."""
    texts: list[str] = []
    for i, part in enumerate(parts):
        text = part.get("text") if isinstance(part, dict) else part
        if not isinstance(text, str) or (isinstance(part, dict) and part.get("type", "text") != "text"):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise ChatTemplateError(f"{place}[{i}] is a part of type {kind!r}, and this model's template takes text")
        texts.append(text)
    return "\n".join(texts)
