"""DeepSeek: calls between markers of their own, the name before or behind a separator.

R1 and V3 write `function<｜tool▁sep｜>name`, a line end and the arguments in a fenced block of JSON; V3.1 writes
`name<｜tool▁sep｜>{...}`. (Their chat templates.)
"""

from __future__ import annotations

from typing import Final

from minfer_models.chat.calls.call import ToolCall
from minfer_models.chat.calls.cursor import Cursor, NotACallError
from minfer_models.chat.calls.notation import Block, named_call

CALLS_END: Final = "<｜tool▁calls▁end｜>"
CALL_BEGIN: Final = "<｜tool▁call▁begin｜>"
CALL_END: Final = "<｜tool▁call▁end｜>"
SEPARATOR: Final = "<｜tool▁sep｜>"
FENCE: Final = "```"


class DeepSeek:
    """Implements `Notation`."""

    marker, bare = "<｜tool▁calls▁begin｜>", False

    def block(self) -> Block:
        """A run is any number of calls and a marker at their end."""
        return _Run()


class _Run:
    def __init__(self) -> None:
        self._read = False

    def next(self, cursor: Cursor) -> ToolCall | None:
        cursor.skip()
        if self._read and cursor.takes(CALLS_END):
            return None
        cursor.require(CALL_BEGIN)
        before = cursor.until("<\n")
        cursor.require(SEPARATOR)
        cursor.skip()
        if cursor.text[cursor.at] == "{":
            call = named_call(before.strip(), cursor.object())
        elif before.strip() == "function":
            call = self._fenced(cursor)
        else:
            raise NotACallError
        cursor.skip()
        cursor.require(CALL_END)
        self._read = True
        return call

    @staticmethod
    def _fenced(cursor: Cursor) -> ToolCall:
        name = cursor.until("<\n").strip()
        cursor.skip()
        cursor.require(f"{FENCE}json")
        cursor.skip()
        arguments = cursor.object()
        cursor.skip()
        cursor.require(FENCE)
        return named_call(name, arguments)
