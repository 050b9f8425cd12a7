"""Tensors encoded by several threads on their way into a file: in order, with few pieces in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

from minfer_ir.formats.base import Bytes, EncodeError, Format
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.reader import GGUFFile
from minfer_models.gguf.source import TensorSource
from minfer_models.gguf.types import type_of

PIECE_ELEMENTS = 1 << 18
"""Elements that one thread takes at a time, in whole rows: 1 MiB of float32."""
RELEASE_EVERY = 1 << 25
"""Bytes read between two releases of the pages that the mapped source has brought into this process."""


class Conversion(NamedTuple):
    """The tensor `name` in the format `new`, or as it is when None."""

    name: str
    new: Format | None


class _Piece(NamedTuple):
    name: str
    start: int
    stop: int
    new: Format | None


class ConvertedTensors:
    """Tensors of an open file in other formats. `sources` are for one `write_gguf`, which takes them in order.

    Every piece of rows is converted by itself, so the bytes don't depend on the threads. Twice as many pieces as
    there are threads are under way or waiting, across the ends of tensors.
    """

    def __init__(self, file: GGUFFile, conversions: Iterable[Conversion], threads: int) -> None:
        self._file, self._conversions = file, list(conversions)
        self._ahead = 2 * threads
        self._executor = ThreadPoolExecutor(threads, "quantize")
        self._left = self._pieces()
        self._waiting: deque[tuple[_Piece, Future[Bytes]]] = deque()
        self._passed = 0

    def sources(self) -> list[TensorSource]:
        """What is to be written."""
        return [self._source(conversion) for conversion in self._conversions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(cancel_futures=True)

    def _source(self, conversion: Conversion) -> TensorSource:
        name, new = conversion
        info = self._file.tensor(name)
        ggml_type = info.ggml_type if new is None else type_of(new)
        if ggml_type is None:
            raise GGUFError(f"is of {info.type_name}: its size is not known", path=info.path, tensor=name)
        return TensorSource(name, info.shape, ggml_type, lambda: self._chunks(name))

    def _chunks(self, name: str) -> Iterator[Bytes]:
        self._fill()
        while self._waiting and self._waiting[0][0].name == name:
            piece, future = self._waiting.popleft()
            self._fill()
            data = future.result()
            yield data
            self._passed += (piece.stop - piece.start) * self._file.tensor(name).row_bytes
            if self._passed >= RELEASE_EVERY:
                self._file.release_pages()
                self._passed = 0

    def _fill(self) -> None:
        while len(self._waiting) < self._ahead and (piece := next(self._left, None)) is not None:
            self._waiting.append((piece, self._executor.submit(self._convert, piece)))

    def _pieces(self) -> Iterator[_Piece]:
        for name, new in self._conversions:
            info = self._file.tensor(name)
            step = max(1, PIECE_ELEMENTS // max(1, info.shape[-1] if info.shape else 1))
            for start in range(0, info.n_rows, step):
                yield _Piece(name, start, min(start + step, info.n_rows), new)

    def _convert(self, piece: _Piece) -> Bytes:
        info = self._file.tensor(piece.name)
        rows = self._file.rows(piece.name)[piece.start : piece.stop]
        if info.format is not None:
            self._check_finite(piece, info.format, rows)
        if piece.new is None or info.format is None:
            return rows
        try:
            return piece.new.encode(info.format.decode(rows))
        except EncodeError as error:
            hint = f"; --tensor-type '^{piece.name}$=BF16' stores it as BF16"
            raise GGUFError(f"{error.below(piece.start)}{hint}", path=info.path, tensor=piece.name) from None

    def _check_finite(self, piece: _Piece, old: Format, rows: Bytes) -> None:
        found = old.find_nonfinite(rows)
        if found is None:
            return
        what = "a value" if old.block_size == 1 else "a scale"
        message = f"{what} of row {piece.start + found[0]}, block {found[1]} is NaN or infinite ({old.name})"
        raise GGUFError(message, path=self._file.tensor(piece.name).path, tensor=piece.name)
