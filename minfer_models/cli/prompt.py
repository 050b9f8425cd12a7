"""Text that a command is given: as an option, on stdin, or in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def check_prompt(prompt: str | None, file: Path | None) -> None:
    """Raise BadParameter unless it comes one way."""
    if (prompt is None) == (file is None):
        raise typer.BadParameter("give the prompt with -p TEXT, -p - (stdin) or --file FILE, one of them")


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """`prompt` as it is, stdin for "-", or the file. Raises ValueError for bytes that aren't UTF-8, OSError."""
    if file is None and prompt != "-":
        assert prompt is not None
        return prompt
    data = sys.stdin.buffer.read() if file is None else file.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        origin = "stdin" if file is None else str(file)
        raise ValueError(f"{origin}: the prompt isn't UTF-8: {error.reason} at byte {error.start}") from None
