"""Bounds-checked little-endian reads over the bytes of a file.

Every length is a Python int from the file, compared with the bytes left (`n > size - pos`) before
anything is read or allocated, so no declared length can wrap, reach past the end, or size a buffer.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.strings import StringArray, text_bytes

_U64 = struct.Struct("<Q")
# A length beyond this is damage, not a download that stopped: no hint about one then.
_PLAUSIBLE_BYTES = 1 << 40


class Cursor:
    """A read position in `data`. `key` and `tensor` say what is being read; errors carry them."""

    def __init__(self, data: mmap.mmap | bytes, path: Path) -> None:
        self.data = data
        self.path = path
        self.size = len(data)
        self.pos = 0
        self.key: str | None = None
        self.tensor: str | None = None

    @property
    def left(self) -> int:
        """Bytes between the position and the end."""
        return self.size - self.pos

    def error(self, message: str, *, offset: int | None = None, incomplete: bool = False) -> GGUFError:
        """An error at `offset` (default: the position), about the current key or tensor."""
        at = self.pos if offset is None else offset
        return GGUFError(message, path=self.path, offset=at, key=self.key, tensor=self.tensor, incomplete=incomplete)

    def need(self, n: int, what: str) -> None:
        """Raise unless `n` bytes are left for `what`."""
        if n > self.size - self.pos:
            raise self.shortage(n, what)

    def shortage(self, n: int, what: str) -> GGUFError:
        """The error for `what` needing `n` bytes, more than are left."""
        text = f"{what} needs {n} bytes, but {self.left} are left"
        if n >= _PLAUSIBLE_BYTES:
            return self.error(text)
        hint = f"file is shorter than declared by {n - self.left} bytes or more (incomplete download?)"
        return self.error(f"{text}: {hint}", incomplete=True)

    def unpack(self, layout: struct.Struct, what: str) -> Any:
        """One value of `layout`."""
        self.need(layout.size, what)
        (value,) = layout.unpack_from(self.data, self.pos)
        self.pos += layout.size
        return value

    def u64(self, what: str) -> int:
        """An unsigned 64-bit integer."""
        return self.unpack(_U64, what)

    def string(self, what: str) -> str:
        """A u64 length and that many bytes of UTF-8."""
        start = self.pos
        n = self.u64(f"the length of {what}")
        self.need(n, what)
        raw = self.data[self.pos : self.pos + n]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not valid UTF-8 ({error.reason})", offset=start) from None
        self.pos += n
        return text

    def numbers(self, count: int, dtype: np.dtype[Any], what: str) -> NDArray[Any]:
        """`count` numbers, copied out of the file, read-only."""
        n = count * dtype.itemsize
        self.need(n, f"{what} ({count} elements)")
        values = np.frombuffer(self.data[self.pos : self.pos + n], dtype=dtype)
        self.pos += n
        return values

    def strings(self, count: int, what: str) -> StringArray:
        """`count` strings, each checked for length and UTF-8."""
        self.need(count * _U64.size, f"{what} ({count} strings)")
        found = self._short_strings(count)
        if found is not None:
            self.pos += len(found.blob)
            return found
        first = self.pos
        starts = array("q", (first,))
        # Local names and an inlined check: this loop sees 300,000 strings in a real vocabulary.
        data, size, pos, unpack = self.data, self.size, self.pos, _U64.unpack_from
        for index in range(count):
            if size - pos < 8:
                self.pos = pos
                raise self.shortage(8, f"the length of string {index} of {what}")
            (n,) = unpack(data, pos)
            pos += 8
            if n > size - pos:
                self.pos = pos
                raise self.shortage(n, f"string {index} of {what}")
            try:
                data[pos : pos + n].decode()
            except UnicodeDecodeError as error:
                raise self.error(f"string {index} of {what} is not valid UTF-8 ({error.reason})", offset=pos) from None
            pos += n
            starts.append(pos)
        self.pos = pos
        return StringArray(self.data[first:pos], np.frombuffer(starts, dtype=np.int64) - first)

    def _short_strings(self, count: int) -> StringArray | None:
        """`count` strings that are all shorter than 256 bytes, found without a loop; None for any that aren't so.

        Such a length is one byte and seven zeros, which text does not hold: every place that looks like one is taken,
        and each must then lie exactly behind the string before it.
        """
        room = min(self.left, count * _LONGEST_GUESSED)
        data = np.frombuffer(self.data, np.uint8, room, self.pos)
        if room < 8 or not count:
            return None
        zeros = data == 0
        seven = zeros[1:-6].copy()
        for byte in range(2, 8):
            seven &= zeros[byte : len(zeros) - 7 + byte]
        starts = np.flatnonzero(seven)[:count]
        if len(starts) < count:
            return None
        ends = starts + 8 + data[starts]
        if starts[0] != 0 or ends[-1] > room or not np.array_equal(ends[:-1], starts[1:]):
            return None
        bounds = np.append(starts, ends[-1])
        blob = self.data[self.pos : self.pos + int(ends[-1])]
        return StringArray(blob, bounds) if _each_is_text(blob, bounds) else None


# Bytes of a string in an array, on average, beyond which it isn't looked at as a whole.
_LONGEST_GUESSED = 32


def _each_is_text(blob: bytes, bounds: NDArray[np.int64]) -> bool:
    """Whether every string is UTF-8: all of them together are, and none starts within a character."""
    data = np.frombuffer(blob + b"\0", np.uint8)
    if ((data[bounds[:-1] + 8] & 0xC0) == 0x80).any():
        return False
    try:
        text_bytes(blob, bounds).decode()
    except UnicodeDecodeError:
        return False
    return True
