"""An answer's parts: reasoning, content and tool calls, told apart by the markers of the model's template."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from minfer_models.chat.calls import Calls, ToolCall

THINKING: Final = (
    ("<think>", "</think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<reasoning>", "</reasoning>"),
)
"""Markers around reasoning; a template that holds a pair talks to a model that writes it."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What to look for in an answer. `thought_open`: the prompt has opened the reasoning, the answer goes on in it.

    `calls`: a notation by name, one of `NOTATIONS`, or "none".
    """

    thinking: tuple[str, str] | None = None
    thought_open: bool = False
    calls: Calls = "none"


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


def thinking_markers(mentions: Any) -> tuple[str, str] | None:
    """The pair of markers that a template holds; `mentions(text)` tells whether it holds a text."""
    return next((pair for pair in THINKING if all(map(mentions, pair))), None)


def is_thought_open(tail: str, thinking: tuple[str, str] | None) -> bool:
    """Whether `tail`, what a prompt ends with, leaves a thinking block open."""
    if thinking is None:
        return False
    opened, closed = thinking
    return tail.rfind(opened) > tail.rfind(closed)
