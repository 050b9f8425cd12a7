"""Small files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_text(path: Path, text: str, option: str = "-o") -> None:
    """Write UTF-8 text by atomic rename; a failure leaves what was there. Raises OSError as `appearing`."""
    with appearing(path, option) as file:
        file.write(text.encode())


@contextmanager
def appearing(path: Path, option: str = "-o") -> Iterator[BinaryIO]:
    """A file to write bytes to, which becomes `path` by atomic rename at the end; after an exception nothing changed.

    A file that is replaced keeps its permissions, and a symbolic link still leads to it. Raises OSError as
    `require_place`, and with the file's name when the disk is full.
    """
    require_place(path, option)
    try:
        with path.open("wb") if _is_device(path) else _replacing(path.resolve()) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(prefix=".minfer-", dir=path.parent)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        Path(temporary).chmod(mode)
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
