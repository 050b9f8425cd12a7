"""Splitting an answer while it comes: any way to cut the text gives the same parts as the whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from minfer_models.chat.answer import CALL_TAGS, Answer, AnswerFormat, Piece, call_from

_State = Literal["start", "thought", "content", "tagged", "json"]
_CALL_STARTS = ('{"name"', '{"type":"function"')


class AnswerSplitter:
    """Takes text with `push` until `finish`; both give the pieces that are certain.

    Reasoning is a marked block at the very start. Newlines around it, and those before a marked call, belong to the
    markers. What only looks like a call stays content, so no text is lost; a call that is cut off is in
    `answer.unfinished`.
    """

    def __init__(self, form: AnswerFormat) -> None:
        self._form = form
        self._state: _State = "start"
        self._waiting = ""
        self._newlines_off = False
        self._moved = True
        self._scan = _JsonScan()
        self.answer = Answer()
        if form.thinking is not None and form.thought_open:
            self._enter("thought")

    def push(self, text: str) -> list[Piece]:
        """More text of the answer."""
        self._waiting += text
        return self._taken(final=False)

    def finish(self) -> list[Piece]:
        """The answer has ended."""
        return self._taken(final=True)

    def _taken(self, final: bool) -> list[Piece]:
        pieces = [piece for piece in self._pieces(final) if piece.text or piece.call]
        for piece in pieces:
            self.answer.add(piece)
        return pieces

    def _pieces(self, final: bool) -> Iterator[Piece]:
        steps = {
            "start": self._start,
            "thought": self._thought,
            "content": self._content,
            "tagged": self._tagged,
            "json": self._json,
        }
        state = None
        while state != self._state or self._moved:
            state, self._moved = self._state, False
            yield from steps[self._state](final)

    def _enter(self, state: _State, newlines_off: bool = True) -> None:
        self._state, self._newlines_off, self._moved = state, newlines_off, True
        self._scan = _JsonScan()

    def _start(self, final: bool) -> Iterator[Piece]:
        """Nothing but white space so far, or the first letters of the marker of reasoning."""
        opened = self._form.thinking[0] if self._form.thinking else None
        begun = self._waiting.lstrip()
        if opened is not None and begun.startswith(opened):
            self._waiting = begun.removeprefix(opened)
            self._enter("thought")
        elif final or not self._may_become(begun, opened):
            self._enter("json" if self._form.calls == "json" else "content", newlines_off=False)
        return iter(())

    @staticmethod
    def _may_become(begun: str, marker: str | None) -> bool:
        return marker is not None and marker.startswith(begun)

    def _thought(self, final: bool) -> Iterator[Piece]:
        assert self._form.thinking is not None
        closed = self._form.thinking[1]
        text = self._without_newlines()
        inside, found, rest = text.partition(closed)
        if found:
            yield Piece("reasoning", inside.rstrip("\n"))
            self._waiting = rest
            self._enter("json" if self._form.calls == "json" else "content")
            return
        if final:
            self._waiting = ""
            yield Piece("reasoning", text.rstrip("\n"))
        else:
            yield self._certain("reasoning", text, closed)

    def _content(self, final: bool) -> Iterator[Piece]:
        text = self._without_newlines()
        if self._form.calls != "tags":
            self._waiting = ""
            yield Piece("content", text)
            return
        before, found, rest = text.partition(CALL_TAGS[0])
        if found:
            yield Piece("content", before.rstrip("\n"))
            self._waiting = rest
            self._enter("tagged")
            return
        if final:
            self._waiting = ""
            yield Piece("content", text)
        else:
            yield self._certain("content", text, CALL_TAGS[0])

    def _tagged(self, final: bool) -> Iterator[Piece]:
        end = self._scan.marker(self._waiting, CALL_TAGS[1])
        if end < 0:
            if final:
                self.answer.unfinished = CALL_TAGS[0] + self._waiting
                self._waiting = ""
            return
        inside, self._waiting = self._waiting[:end], self._waiting[end + len(CALL_TAGS[1]) :]
        call = call_from(inside)
        self._enter("content", newlines_off=call is not None)
        if call is not None:
            yield Piece("call", call=call)
        else:
            yield Piece("content", CALL_TAGS[0] + inside + CALL_TAGS[1])

    def _json(self, final: bool) -> Iterator[Piece]:
        """Objects that each state a call, one behind the other; anything else is content from there on."""
        text = self._waiting
        end = self._scan.object_end(text) if _may_start_call(text) else 0
        call = call_from(text[:end].lstrip("; \n")) if end else None
        if call is not None:
            self._waiting = text[end:]
            self._enter("json")
            yield Piece("call", call=call)
        elif end or not _may_start_call(text):
            self._enter("content", self._newlines_off)
        elif final:
            self._cut_json(text)

    def _cut_json(self, text: str) -> None:
        """The end came where a call may have begun."""
        if _is_call_start(text):
            self.answer.unfinished, self._waiting = text, ""
        elif self.answer.calls and not text.strip("; \n"):
            self._waiting = ""  # what stands between calls
        else:
            self._enter("content", self._newlines_off)

    def _without_newlines(self) -> str:
        """What waits, less the newlines that belong to the marker before it."""
        if self._newlines_off:
            self._waiting = self._waiting.lstrip("\n")
            self._newlines_off = not self._waiting
        return self._waiting

    def _certain(self, kind: Literal["reasoning", "content"], text: str, marker: str) -> Piece:
        """The text up to where newlines and the marker may begin; what follows goes on waiting."""
        begun = next((n for n in range(min(len(marker), len(text)), 0, -1) if text.endswith(marker[:n])), 0)
        kept = text[: len(text) - begun].rstrip("\n")
        self._waiting = text[len(kept) :]
        return Piece(kind, kept)


def split_answer(text: str, form: AnswerFormat) -> Answer:
    """The parts of a whole answer."""
    splitter = AnswerSplitter(form)
    splitter.push(text)
    splitter.finish()
    return splitter.answer


def _may_start_call(text: str) -> bool:
    """Whether a text of which more may come can be the start of a call."""
    compact = re.sub(r"[;\s]+", "", text[:64])
    return any(compact.startswith(start) or start.startswith(compact) for start in _CALL_STARTS)


def _is_call_start(text: str) -> bool:
    return re.sub(r"[;\s]+", "", text).startswith(_CALL_STARTS)


class _JsonScan:
    """Looks through JSON text as it grows, each character once."""

    def __init__(self) -> None:
        self._at, self._depth = 0, 0
        self._in_string = self._escaped = False

    def marker(self, text: str, marker: str) -> int:
        """Where `marker` first stands outside of strings, or -1."""
        while self._at < len(text):
            rest = text[self._at : self._at + len(marker)]
            if not self._in_string and rest == marker:
                return self._at
            if not self._in_string and marker.startswith(rest):
                return -1  # the rest of it may come
            self._step(text[self._at])
        return -1

    def object_end(self, text: str) -> int:
        """One past the brace that closes the first object, or 0 while there is none."""
        while self._at < len(text):
            char = text[self._at]
            self._step(char)
            if char == "}" and not self._in_string and self._depth <= 0:
                return self._at
        return 0

    def _step(self, char: str) -> None:
        self._at += 1
        if self._in_string:
            self._in_string = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
        elif char == '"':
            self._in_string = True
        elif char in "{}":
            self._depth += 1 if char == "{" else -1
