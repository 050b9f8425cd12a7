"""What a conversation shows: answers on stdout as they come, everything about them on stderr."""

from __future__ import annotations

from typing import Any

import typer

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

    def piece(self, text: str, thinking: bool = False) -> None:
        """One more piece of an answer."""
        if not text:
            return
        self._at_line_start = text.endswith("\n")
        if self.terminal:
            text = harmless(text)
            if thinking != self._dimmed:
                text = (DIM if thinking else NORMAL) + text
                self._dimmed = thinking
        self._out.write(text)
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
