"""A long array of strings kept as its bytes, decoded one by one on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray


def text_bytes(blob: bytes, bounds: NDArray[np.int64]) -> bytes:
    """The strings of an encoding, each behind one zero byte in place of its length."""
    data = np.frombuffer(blob, np.uint8).copy()
    kept = np.ones(len(data), bool)
    for byte in range(8):
        kept[bounds[:-1] + byte] = False
    kept[bounds[:-1]] = True
    data[bounds[:-1]] = 0
    return data[kept].tobytes()


class StringArray(Sequence[str]):
    """`n` strings in their GGUF encoding: a u64 length before each.

    It costs the bytes of the file plus 8 per string, where a list of `str` costs about 60 per string: a
    crafted array of a million tiny strings stays small. `blob` holds the encoding, known to be valid;
    `bounds` [n + 1] int64 the byte where each string's length begins, then the end.
    """

    def __init__(self, blob: bytes, bounds: NDArray[np.int64]) -> None:
        self.blob = blob
        self.bounds = bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return self.blob[int(self.bounds[i]) + 8 : int(self.bounds[i + 1])].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_list())

    def joined(self) -> str:
        """All strings with a NUL between two of them."""
        return text_bytes(self.blob, self.bounds)[1:].decode()

    def to_list(self) -> list[str]:
        """All strings; a vocabulary of 150,000 takes a tenth of the time that decoding one by one does."""
        # A string with a NUL of its own would be cut in two; then there are more pieces than strings.
        pieces = self.joined().split("\0") if len(self) else []
        if len(pieces) == len(self):
            return pieces
        ends = self.bounds.tolist()
        return [self.blob[start + 8 : end].decode() for start, end in pairwise(ends)]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StringArray):
            return self.blob == other.blob
        return isinstance(other, (list, tuple)) and list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        shown = ", ".join(repr(text[:40]) for text in self[:4])
        return f"StringArray([{shown}{', ...' if len(self) > 4 else ''}], n={len(self)})"
