"""Text files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str, option: str = "-o") -> None:
    """Write UTF-8 text by atomic rename; a failure leaves what was there. Raises OSError as `require_place`."""
    require_place(path, option)
    if _is_device(path):
        path.write_text(text, encoding="utf-8")
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


def require_place(path: Path, option: str = "-o") -> None:
    """Raise OSError, naming `option` and `path` as given, when no file can appear there: asked before the work."""
    named = f"{option} {path}".strip()
    if path.is_dir():
        raise IsADirectoryError(f"{named} is a folder; name a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{named}: there is no folder {path.parent}")
    if not _is_device(path) and not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{named}: the folder {path.parent} can't be written")


def _is_device(path: Path) -> bool:
    """A device or pipe, such as /dev/stdout."""
    return path.exists() and not path.is_file()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
