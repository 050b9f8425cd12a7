"""Where a command's result goes: stdout, or a file that appears whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minfer_models.plain_text import harmless
from minfer_models.text_files import write_text


def emit(text: str, path: Path | None) -> None:
    """Write `text`, which ends in a newline, to `path` or to stdout as `stdout_writer` does."""
    if path is not None:
        write_text(path, text)
        return
    stdout_writer()(text)


def stdout_writer() -> Callable[[str], None]:
    """Writes text to stdout at once: as it is to a file or pipe, without control characters to a terminal."""
    out = plain_stdout()
    at_terminal = out.isatty()

    def write(text: str) -> None:
        out.write(harmless(text) if at_terminal else text)
        out.flush()

    return write


def plain_stdout() -> Any:
    """Stdout, with a replacement for what its encoding lacks: a model's text must not end in an error."""
    out: Any = sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="replace")
    return out
