"""What one template takes: content as texts, lists of parts, null; arguments of calls as objects or JSON text, ids.

Found out by rendering small conversations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from minfer_models.chat.calls import ToolCall
from minfer_models.chat.errors import ChatTemplateError

Message = dict[str, Any]
Content = str | list[dict[str, str]] | None
NullContent = Literal["absent", "null", "empty"]

NEEDLE = "wxyzzy"
"""Content of the conversations that are tried: no template writes it by itself."""
ID = "abcdefghi"
"""Of a call: some templates insist on nine characters."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """How calls of tools are handed to a template: `as_text`, arguments in JSON; `with_ids`, every call has an id."""

    as_text: bool = False
    with_ids: bool = False

    def call(self, name: str = NEEDLE) -> Message:
        """A call of function `name`, for a conversation that is tried."""
        arguments = {"a": NEEDLE}
        function = {"name": name, "arguments": json.dumps(arguments) if self.as_text else arguments}
        return {**({"id": ID} if self.with_ids else {}), "type": "function", "function": function}

    def result(self, content: Content) -> Message:
        """What the tool answered."""
        return {"role": "tool", "name": "f", "content": content, **({"tool_call_id": ID} if self.with_ids else {})}


_CALL_WAYS: Final = [CallRules(as_text, with_ids) for as_text in (False, True) for with_ids in (False, True)]


class ContentRules:
    """How content is handed to one template, asked by role; every answer is found once."""

    def __init__(self, render: Callable[[list[Message]], str]) -> None:
        """render: the text of messages as they are; raises ChatTemplateError where the template can't."""
        self._render = render
        self._takes: dict[tuple[str, bool], bool] = {}
        self._null: NullContent | None = None
        self._calls: CallRules | None = None

    def takes(self, role: str, parts: bool) -> bool:
        """Whether content of messages of this role may be a list of text parts, or else a text."""
        key = (role, parts)
        if key not in self._takes:
            content: Content = text_parts(NEEDLE) if parts else NEEDLE
            rules = self.calls if role == "tool" else CallRules()
            self._takes[key] = any(map(self._shows, with_system(conversation(role, content, rules))))
        return self._takes[key]

    @property
    def calls(self) -> CallRules:
        """How calls are handed on: as objects without ids of our own, unless the template fails or loses them so."""
        if self._calls is None:
            ways = (way for way in _CALL_WAYS if any(map(self._shows, _calling("empty", way))))
            self._calls = next(ways, CallRules())
        return self._calls

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
            if any(map(self._shows, _calling(way, self.calls))):
                return way
        return "absent"

    def _shows(self, messages: list[Message]) -> bool:
        try:
            text = self._render(messages)
        except ChatTemplateError:
            return False
        return NEEDLE in text and f"'{NEEDLE}'" not in text and "'text'" not in text and '"text"' not in text


def conversation(role: str, content: Content, calls: CallRules) -> list[Message]:
    """The shortest one with a message of `role` that holds `content`."""
    user, message = {"role": "user", "content": "a"}, {"role": role, "content": content}
    if role == "system":
        return [message, user]
    if role == "tool":
        return [user, {"role": "assistant", "content": "", "tool_calls": [calls.call("f")]}, calls.result(content)]
    return [message] if role == "user" else [user, message, user]


def with_system(messages: list[Message]) -> list[list[Message]]:
    """The conversation, and the same behind a system message, which some templates ask for."""
    return [messages, [{"role": "system", "content": "a"}, *messages]]


def _calling(way: NullContent, calls: CallRules) -> Sequence[list[Message]]:
    message: Message = {"role": "assistant", "tool_calls": [calls.call()]}
    if way != "absent":
        message["content"] = None if way == "null" else ""
    return with_system([{"role": "user", "content": "a"}, message, calls.result("a")])


CALLED: Final = ToolCall(NEEDLE, {"a": NEEDLE})
TOOL: Final[Message] = {
    "type": "function",
    "function": {"name": "f", "description": "a", "parameters": {"type": "object", "properties": {}}},
}


def call_conversation() -> list[Message]:
    """A question and the call CALLED; its tools may be TOOL, which no notation could take for that call."""
    return [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [CallRules().call()]}]


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
