"""Mistral: `[TOOL_CALLS]` and a JSON array of calls, or a name and its arguments behind a marker each.

Tokenizers up to v7 write `[TOOL_CALLS] [{"name": ..., "arguments": {...}, "id": ...}, ...]`, v11
`[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}`, v13 `[TOOL_CALLS]name[ARGS]{...}`. (mistral-common, "tool calls".)
"""

from __future__ import annotations

from typing import Final, Literal

from minfer_models.chat.calls.call import ToolCall
from minfer_models.chat.calls.cursor import BLANKS, Cursor
from minfer_models.chat.calls.notation import Block, named_call, stated_call

CALL_ID, ARGS = "[CALL_ID]", "[ARGS]"
_ENDS_A_NAME: Final = BLANKS + '[]{}(),:"'


class Mistral:
    """Implements `Notation`."""

    marker, bare = "[TOOL_CALLS]", False

    def block(self) -> Block:
        """A run is an array, or one call with its name."""
        return _Run()


class _Run:
    def __init__(self) -> None:
        self._kind: Literal["array", "named"] | None = None

    def next(self, cursor: Cursor) -> ToolCall | None:
        if self._kind == "named":
            return None
        cursor.skip()
        if self._kind == "array":
            if cursor.takes("]"):
                return None
            cursor.require(",")
        elif not cursor.takes("["):
            call = self._named(cursor)
            self._kind = "named"
            return call
        cursor.skip()
        call = stated_call(cursor.object())
        self._kind = "array"
        return call

    @staticmethod
    def _named(cursor: Cursor) -> ToolCall:
        name = cursor.until(_ENDS_A_NAME)
        call_id = cursor.until(_ENDS_A_NAME) if cursor.takes(CALL_ID) else ""
        cursor.takes(ARGS)
        cursor.skip()
        return named_call(name, cursor.object(), call_id)
