"""Where a command's result goes: stdout, or a file that appears whole or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from minfer_models.text_files import write_text


def emit(text: str, path: Path | None) -> None:
    """Write `text`, which ends in a newline, to `path` or to stdout."""
    if path is not None:
        write_text(path, text)
        return
    out = plain_stdout()
    out.write(text)
    out.flush()


def plain_stdout() -> Any:
    """Stdout, with a replacement for what its encoding lacks: a model's text must not end in an error."""
    out: Any = sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="replace")
    return out
