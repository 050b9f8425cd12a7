"""What a conversation shows: answers on stdout as they come, everything about them on stderr."""

from __future__ import annotations

import json
from typing import Any

import typer

from minfer_models.chat import Piece
from minfer_models.cli.output import plain_stdout
from minfer_models.plain_text import harmless

DIM, NORMAL = "\x1b[2m", "\x1b[0m"


class Screen:
    """Stdout and stderr. On a terminal thinking is dimmed, and control characters are shown, not obeyed."""

    def __init__(self) -> None:
        self._out: Any = plain_stdout()
        self.terminal = self._out.isatty()
        self._dimmed = False
        self._at_line_start = True

    def piece(self, piece: str | Piece) -> None:
        """One more piece of an answer: its text as it is, or a part of it."""
        text = piece if isinstance(piece, str) else _text(piece)
        if not text:
            return
        thinking = isinstance(piece, Piece) and piece.kind == "reasoning"
        shown = harmless(text) if self.terminal else text
        if self.terminal and thinking != self._dimmed:
            shown = DIM + shown if thinking else f"{NORMAL}\n\n{shown}"
            self._dimmed = thinking
        self._at_line_start = text.endswith("\n")
        self._out.write(shown)
        self._out.flush()

    def end(self) -> None:
        """The answer is over: the next thing stands on a line of its own."""
        if self._dimmed:
            self._out.write(NORMAL)
            self._dimmed = False
        if not self._at_line_start:
            self._out.write("\n")
        self._out.flush()
        self._at_line_start = True

    def note(self, text: str) -> None:
        """A line about it."""
        typer.echo(text, err=True)


def _text(piece: Piece) -> str:
    if piece.call is None:
        return piece.text
    return f"\n[{piece.call.name}({json.dumps(piece.call.arguments, ensure_ascii=False)})]"
