"""Tensors of open files on their way into another, byte for byte, with little of them in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from minfer_models.gguf import shards
from minfer_models.gguf.hearing import HeardBytes, heard
from minfer_models.gguf.metadata import TypedValue
from minfer_models.gguf.reader import GGUFFile
from minfer_models.gguf.source import TensorSource, file_source

PIECE_BYTES = 1 << 24
RELEASE_EVERY = 1 << 28
"""Bytes copied between two releases of the pages that the mapped files have brought into this process."""


def copied_tensors(file: GGUFFile, hear: HeardBytes | None = None) -> list[TensorSource]:
    """Every tensor of `file` in its order; `hear` is told of the bytes as they go."""
    copied = _Copied(file)
    tensors = [replace(file_source(file, name), chunks=copied.chunks(name)) for name in file.tensors]
    return tensors if hear is None else [heard(tensor, hear) for tensor in tensors]


def copied_metadata(file: GGUFFile) -> dict[str, TypedValue]:
    """The metadata of `file` without what says that it is, or once was, a shard."""
    return {key: value for key, value in file.metadata.typed_items() if key not in shards.SPLIT_KEYS}


class _Copied:
    """Pieces of a file's tensors; the pages behind them are let go now and then."""

    def __init__(self, file: GGUFFile) -> None:
        self._file, self._held = file, 0

    def chunks(self, name: str) -> Any:
        """What `TensorSource.chunks` is for the tensor `name`."""
        return lambda: self._pieces(name)

    def _pieces(self, name: str) -> Iterator[NDArray[Any]]:
        rows = self._file.rows(name)
        step = max(1, PIECE_BYTES // rows.shape[1])
        for start in range(0, len(rows), step):
            piece = rows[start : start + step]
            yield piece
            self._held += piece.nbytes
            if self._held >= RELEASE_EVERY:
                self._file.release_pages()
                self._held = 0
