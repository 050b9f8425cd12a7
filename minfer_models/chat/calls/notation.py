"""What a notation of calls is."""

from __future__ import annotations

from typing import Protocol

from minfer_models.chat.calls.call import ToolCall, call_from, json_object
from minfer_models.chat.calls.cursor import Cursor, NotACallError


class Block(Protocol):
    """Reads one run of calls, a call at a time."""

    def next(self, cursor: Cursor) -> ToolCall | None:
        """The call that the text begins with, None where the run is over; the cursor then stands behind either.

        Raises MoreNeededError, after which it is asked again with a longer text, and NotACallError, after which the
        text behind the last call is content.
        """
        ...


class Notation(Protocol):
    """How a model writes calls: runs that begin with `marker`, or with `bare` right where content would."""

    marker: str
    bare: bool

    def block(self) -> Block:
        """What reads the next run, from behind its marker."""
        ...


def stated_call(text: str) -> ToolCall:
    """`call_from`, where anything else is NotACallError."""
    call = call_from(text)
    if call is None:
        raise NotACallError
    return call


def named_call(name: str, arguments: str, call_id: str = "") -> ToolCall:
    """A call of `name` with its arguments in JSON. Raises NotACallError for no name or no object of arguments."""
    given = json_object(arguments)
    if not name or given is None:
        raise NotACallError
    return ToolCall(name, given, call_id)
