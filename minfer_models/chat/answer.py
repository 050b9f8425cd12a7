"""An answer's parts: reasoning, content and tool calls, told apart by the markers of the model's template."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

THINKING: Final = (
    ("<think>", "</think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<reasoning>", "</reasoning>"),
)
"""Markers around reasoning; a template that holds a pair talks to a model that writes it."""
CALL_TAGS: Final = ("<tool_call>", "</tool_call>")

Calls = Literal["tags", "json", "none"]
"""How a model writes tool calls: each a JSON object between CALL_TAGS, the answer itself as JSON objects with `name`
and `parameters`, or in no way that is known here."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What to look for in an answer. `thought_open`: the prompt has opened the reasoning, the answer goes on in it."""

    thinking: tuple[str, str] | None = None
    thought_open: bool = False
    calls: Calls = "none"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for."""

    name: str
    arguments: Mapping[str, Any]

    def as_message(self) -> dict[str, Any]:
        """As an entry of a message's `tool_calls`."""
        return {"type": "function", "function": {"name": self.name, "arguments": dict(self.arguments)}}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer as it comes: text of the reasoning or the content, or one whole call."""

    kind: Literal["reasoning", "content", "call"]
    text: str = ""
    call: ToolCall | None = None


@dataclass(slots=True)
class Answer:
    """A whole answer. `unfinished` is a call that was cut off on the way, as the model wrote it."""

    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    unfinished: str = ""

    def add(self, piece: Piece) -> None:
        """Take a piece in."""
        if piece.call is not None:
            self.calls.append(piece.call)
        elif piece.kind == "reasoning":
            self.reasoning += piece.text
        else:
            self.content += piece.text

    def as_message(self) -> dict[str, Any]:
        """As a message of the conversation that goes on."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [call.as_message() for call in self.calls]
        return message


def call_from(text: str) -> ToolCall | None:
    """The call that a JSON object states by `name` and `arguments` or `parameters`; None for anything else."""
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(stated, dict) or not isinstance(stated.get("name"), str) or not stated["name"]:
        return None
    arguments = stated.get("arguments", stated.get("parameters"))
    if arguments is None:
        arguments = {}
    return ToolCall(stated["name"], arguments) if isinstance(arguments, dict) else None


def thinking_markers(mentions: Any) -> tuple[str, str] | None:
    """The pair of markers that a template holds; `mentions(text)` tells whether it holds a text."""
    return next((pair for pair in THINKING if all(map(mentions, pair))), None)


def calls_written(text: str, name: str) -> Calls:
    """How `text`, a rendered conversation with a call of function `name`, shows that call."""
    start = rf'\{{\s*"name":\s*"{re.escape(name)}"'
    if re.search(re.escape(CALL_TAGS[0]) + rf"\s*{start}", text):
        return "tags"
    return "json" if re.search(start + r',\s*"(parameters|arguments)"', text) else "none"


def is_thought_open(tail: str, thinking: tuple[str, str] | None) -> bool:
    """Whether `tail`, what a prompt ends with, leaves a thinking block open."""
    if thinking is None:
        return False
    opened, closed = thinking
    return tail.rfind(opened) > tail.rfind(closed)
