"""Splitting an answer while it comes: any way to cut the text gives the same parts as the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from minfer_models.chat.answer import Answer, AnswerFormat, Piece
from minfer_models.chat.calls import NOTATIONS
from minfer_models.chat.calls.cursor import Cursor, JsonScan, MoreNeededError, NotACallError
from minfer_models.chat.calls.notation import Block
from minfer_models.chat.calls.objects import BETWEEN

_State = Literal["start", "thought", "content", "calls"]


class AnswerSplitter:
    """Takes text with `push` until `finish`; both give the pieces that are certain.

    Reasoning is a marked block at the very start. Newlines around it, and those around calls, belong to the markers.
    What only looks like a call stays content, so no text is lost; a call that is cut off is in `answer.unfinished`.
    """

    def __init__(self, form: AnswerFormat) -> None:
        self._form = form
        self._notation = NOTATIONS.get(form.calls)
        self._state: _State = "start"
        self._waiting = ""
        self._newlines_off = False
        self._moved = True
        self._block: Block | None = None
        self._scan = JsonScan()
        self._lead = ""  # the marker of calls and the newlines before it
        self._called = False  # it has led to one
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
        steps = {"start": self._start, "thought": self._thought, "content": self._content, "calls": self._calls}
        state = None
        while state != self._state or self._moved:
            state, self._moved = self._state, False
            yield from steps[self._state](final)

    def _enter(self, state: _State, newlines_off: bool = True) -> None:
        self._state, self._newlines_off, self._moved = state, newlines_off, True

    def _enter_content(self, newlines_off: bool) -> None:
        """Content begins, or bare calls in its place."""
        bare = self._notation is not None and self._notation.bare
        self._enter("calls" if bare else "content", newlines_off)
        if bare:
            self._begin_calls("")

    def _begin_calls(self, lead: str) -> None:
        assert self._notation is not None
        self._block, self._scan = self._notation.block(), JsonScan()
        self._lead, self._called = lead, False

    def _start(self, final: bool) -> Iterator[Piece]:
        """Nothing but white space so far, or the first letters of the marker of reasoning."""
        opened = self._form.thinking[0] if self._form.thinking else None
        begun = self._waiting.lstrip()
        if opened is not None and begun.startswith(opened):
            self._waiting = begun.removeprefix(opened)
            self._enter("thought")
        elif final or opened is None or not opened.startswith(begun):
            self._enter_content(newlines_off=False)
        return iter(())

    def _thought(self, final: bool) -> Iterator[Piece]:
        assert self._form.thinking is not None
        closed = self._form.thinking[1]
        text = self._without_newlines()
        inside, found, rest = text.partition(closed)
        if found:
            yield Piece("reasoning", inside.rstrip("\n"))
            self._waiting = rest
            self._enter_content(newlines_off=True)
        elif final:
            self._waiting = ""
            yield Piece("reasoning", text.rstrip("\n"))
        else:
            yield self._certain("reasoning", text, closed)

    def _content(self, final: bool) -> Iterator[Piece]:
        text = self._without_newlines()
        before, found, rest = text.partition(self._notation.marker) if self._notation else (text, "", "")
        if found:
            kept = before.rstrip("\n")
            self._waiting = rest
            self._enter("calls")
            self._begin_calls(lead=text[len(kept) : len(before) + len(found)])
            yield Piece("content", kept)
        elif final or self._notation is None:
            self._waiting = ""
            yield Piece("content", text)
        else:
            yield self._certain("content", text, self._notation.marker)

    def _calls(self, final: bool) -> Iterator[Piece]:
        """The next call, or the end of them; what is neither is content from there on."""
        assert self._block is not None
        cursor = Cursor(self._waiting, self._scan)
        try:
            call = self._block.next(cursor)
        except NotACallError:
            yield from self._no_call()
        except MoreNeededError:
            if final:
                yield from self._cut_off(cursor.begun)
        else:
            self._waiting, self._scan = self._waiting[cursor.at :], JsonScan()
            self._moved = self._called = True
            if call is None:
                self._enter("content")
            else:
                yield Piece("call", call=call)

    def _no_call(self) -> Iterator[Piece]:
        marked = bool(self._lead) and not self._called
        self._enter("content", newlines_off=self._called or (self._newlines_off and not marked))
        yield Piece("content", self._lead if marked else "")

    def _cut_off(self, begun: bool) -> Iterator[Piece]:
        """The end came where a call may have begun."""
        if self._called and not self._waiting.strip(BETWEEN):
            self._waiting = ""
        elif begun or self._lead:
            self.answer.unfinished, self._waiting = ("" if self._called else self._lead) + self._waiting, ""
        else:
            yield from self._no_call()

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
