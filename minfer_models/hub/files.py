"""Files that appear whole or not at all, with the bytes that were promised."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import LocateError


def say(message: str) -> None:
    """A progress line on stderr; stdout belongs to the model's text."""
    print(message, file=sys.stderr, flush=True)


def sha256(path: Path) -> str:
    """The file's SHA-256 as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_sha256(path: Path, expected: str, origin: str) -> None:
    """Delete `path` and raise LocateError unless its bytes hash to `expected`."""
    actual = sha256(path)
    if actual == expected:
        return
    path.unlink()
    raise LocateError(f"{origin}: sha256 is {actual}, expected {expected}; the damaged copy was deleted, try again")


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock beside `target`, so that two processes never fetch the same thing twice."""
    from huggingface_hub.utils import WeakFileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(target.with_name(target.name + ".lock")):
        yield
