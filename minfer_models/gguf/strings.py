"""A long array of strings kept as its bytes, decoded one by one on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray


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
        start = 0
        for end in self.bounds[1:].tolist():
            yield self.blob[start + 8 : end].decode()
            start = end

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StringArray):
            return self.blob == other.blob
        return isinstance(other, (list, tuple)) and list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        shown = ", ".join(repr(text[:40]) for text in self[:4])
        return f"StringArray([{shown}{', ...' if len(self) > 4 else ''}], n={len(self)})"
