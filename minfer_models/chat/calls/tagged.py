"""Hermes and Qwen: each call a JSON object between tags, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

(The chat templates of Hermes 2 Pro and of Qwen 2.5 and 3.)
"""

from __future__ import annotations

from typing import Final

from minfer_models.chat.calls.call import ToolCall
from minfer_models.chat.calls.cursor import Cursor
from minfer_models.chat.calls.notation import Block, stated_call

CLOSED: Final = "</tool_call>"


class Tagged:
    """Implements `Notation`."""

    marker, bare = "<tool_call>", False

    def block(self) -> Block:
        """A run is one call."""
        return _Tag()


class _Tag:
    def __init__(self) -> None:
        self._read = False

    def next(self, cursor: Cursor) -> ToolCall | None:
        if self._read:
            return None
        cursor.skip()
        text = cursor.object()
        cursor.skip()
        cursor.require(CLOSED)
        call = stated_call(text)
        self._read = True
        return call
