"""Llama 3: an answer of JSON objects, `{"name": ..., "parameters": {...}}; {...}`, or such behind `<|python_tag|>`.

(Meta's model cards for Llama 3.1 to 3.3, "JSON based tool calling", and their chat templates. What else may stand
behind the tag, Python code or a call of a built-in tool, stays content.)
"""

from __future__ import annotations

from typing import Final

from minfer_models.chat.calls.call import ToolCall, json_object
from minfer_models.chat.calls.cursor import BLANKS, Cursor, NotACallError
from minfer_models.chat.calls.notation import Block, stated_call

BETWEEN: Final = BLANKS + ";"
_KEYS: Final = frozenset({"type", "id", "name", "arguments", "parameters"})


class Objects:
    """Implements `Notation`."""

    marker, bare = "<|python_tag|>", True

    def block(self) -> Block:
        """A run is any number of objects."""
        return _Objects()


class _Objects:
    def next(self, cursor: Cursor) -> ToolCall | None:
        cursor.skip(BETWEEN)
        start = cursor.at
        self._require_start(cursor)
        cursor.at, cursor.begun = start, True
        text = cursor.object()
        call = stated_call(text)
        if (json_object(text) or {}).keys() - _KEYS:
            raise NotACallError  # an answer in JSON that happens to have a name
        return call

    @staticmethod
    def _require_start(cursor: Cursor) -> None:
        """The first key tells: an answer in other JSON is content from its first letter on."""
        cursor.require("{")
        cursor.skip()
        if cursor.takes('"type"'):
            cursor.skip()
            cursor.require(":")
            cursor.skip()
            cursor.require('"function"')
        else:
            cursor.require('"name"')
