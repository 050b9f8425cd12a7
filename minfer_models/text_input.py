"""Texts that a user hands in: UTF-8, of a size that can be held."""

from __future__ import annotations

from typing import IO

MOST_BYTES = 1 << 28
"""Far above the longest context. A device, or a pipe that never ends, would fill the memory."""


def read_utf8(file: IO[bytes], origin: str, what: str, most: int = MOST_BYTES) -> str:
    """All that is in `file`, `what` of `origin`. Raises ValueError for what isn't UTF-8 or too long, OSError."""
    data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{origin}: {what} has more than {most >> 20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{origin}: {what} isn't UTF-8: {error.reason} at byte {error.start}") from None
