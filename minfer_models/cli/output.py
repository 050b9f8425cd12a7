"""Where a command's result goes: stdout, or a file that appears whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text by atomic rename; a failure leaves what was there. Raises OSError."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")  # a device or pipe, such as /dev/stdout
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
