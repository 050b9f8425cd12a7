"""Where a command's result goes: stdout, or a file that appears whole or not at all."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
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


def json_line(value: Any) -> str:
    """A value as one line of JSON, which has no NaN and no infinity: null stands for them."""
    return json.dumps(_finite(value), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


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
