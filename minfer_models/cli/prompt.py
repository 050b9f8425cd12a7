"""Text that a command is given: as an option, on stdin, or in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from minfer_models.text_input import read_utf8


def check_prompt(prompt: str | None, file: Path | None) -> None:
    """Raise BadParameter unless it comes one way."""
    if (prompt is None) == (file is None):
        raise typer.BadParameter("give the prompt with -p TEXT, -p - (stdin) or --file FILE, one of them")


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """`prompt` as it is, stdin for "-", or the file. Raises ValueError for what isn't UTF-8 or too long, OSError."""
    if file is None and prompt != "-":
        assert prompt is not None
        return prompt
    if file is None:
        return read_utf8(sys.stdin.buffer, "stdin", "the prompt")
    with file.open("rb") as opened:
        return read_utf8(opened, str(file), "the prompt")
