"""Pieces of tensors made by several threads on their way into a file: in order, few bytes of them at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

from minfer_ir.formats.base import Bytes

AHEAD = 2
"""Pieces under way or waiting for each thread, at most."""
BYTES_AHEAD = 1 << 23
"""Bytes of them for each thread. A piece that is larger, which takes rows of a million elements, goes alone."""


class Piece(NamedTuple):
    """Whole rows of `tensor`, to be made by one thread; `nbytes` is the memory that they take on their way."""

    tensor: str
    nbytes: int
    make: Callable[[], Bytes]


class PiecesAhead:
    """Pieces in the order given, made ahead of whoever takes them. For one `write_gguf`, which takes all in order.

    Each is made by itself, so the bytes don't depend on the threads. What a piece raises is raised where its turn
    comes: of several errors the first one in the file is told.
    """

    def __init__(self, pieces: Iterable[Piece], threads: int) -> None:
        self._left = iter(pieces)
        self._next = next(self._left, None)
        self._most, self._most_bytes = AHEAD * threads, BYTES_AHEAD * threads
        self._waiting: deque[tuple[Piece, Future[Bytes]]] = deque()
        self._bytes = 0
        self._executor = ThreadPoolExecutor(threads, "pieces")

    def of(self, tensor: str) -> Iterator[tuple[Piece, Bytes]]:
        """The pieces of a tensor whose turn it is."""
        self._fill()
        while self._waiting and self._waiting[0][0].tensor == tensor:
            piece, future = self._waiting.popleft()
            made = future.result()
            self._bytes -= piece.nbytes
            self._fill()
            yield piece, made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(cancel_futures=True)

    def _fill(self) -> None:
        while (piece := self._next) is not None and self._fits(piece):
            self._waiting.append((piece, self._executor.submit(piece.make)))
            self._bytes += piece.nbytes
            self._next = next(self._left, None)

    def _fits(self, piece: Piece) -> bool:
        if not self._waiting:
            return True
        return len(self._waiting) < self._most and self._bytes + piece.nbytes <= self._most_bytes


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
