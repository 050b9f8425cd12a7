"""Tensors of an open file encoded piece by piece on their way into another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from minfer_ir.formats.base import Bytes, EncodeError, Format
from minfer_models.gguf.encoders import Encode, numpy_encode
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.pieces import Piece, PiecesAhead
from minfer_models.gguf.reader import GGUFFile
from minfer_models.gguf.source import TensorSource
from minfer_models.gguf.types import type_of

PIECE_ELEMENTS = 1 << 18
"""Elements that one thread takes at a time, in whole rows: 1 MiB of float32."""
RELEASE_EVERY = 1 << 25
"""Bytes read between two releases of the pages that the mapped source has brought into this process."""
FLOAT_BYTES = 4


class Conversion(NamedTuple):
    """The tensor `name` in the format `new`, or as it is when None."""

    name: str
    new: Format | None


class ConvertedTensors:
    """Tensors of an open file in other formats. `sources` are for one `write_gguf`, which takes them in order."""

    def __init__(
        self, file: GGUFFile, conversions: Iterable[Conversion], threads: int, encode: Encode = numpy_encode
    ) -> None:
        self._file, self._conversions, self._encode = file, list(conversions), encode
        self._ahead = PiecesAhead(self._pieces(), threads)
        self._passed = 0

    def sources(self) -> list[TensorSource]:
        """What is to be written."""
        return [self._source(conversion) for conversion in self._conversions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ahead.__exit__(kind, error, trace)

    def _source(self, conversion: Conversion) -> TensorSource:
        name, new = conversion
        info = self._file.tensor(name)
        ggml_type = info.ggml_type if new is None else type_of(new)
        if ggml_type is None:
            raise GGUFError(f"is of {info.type_name}: its size is not known", path=info.path, tensor=name)
        return TensorSource(name, info.shape, ggml_type, lambda: self._chunks(name))

    def _chunks(self, name: str) -> Iterator[Bytes]:
        for piece, data in self._ahead.of(name):
            yield data
            self._passed += piece.nbytes
            if self._passed >= RELEASE_EVERY:
                self._file.release_pages()
                self._passed = 0

    def _pieces(self) -> Iterator[Piece]:
        for name, new in self._conversions:
            info = self._file.tensor(name)
            n = max(1, info.shape[-1] if info.shape else 1)
            step = max(1, PIECE_ELEMENTS // n)
            for start in range(0, info.n_rows, step):
                stop = min(start + step, info.n_rows)
                nbytes = (stop - start) * (info.row_bytes if new is None else FLOAT_BYTES * n)
                yield Piece(name, nbytes, partial(self._converted, name, new, start, stop))

    def _converted(self, name: str, new: Format | None, start: int, stop: int) -> Bytes:
        info = self._file.tensor(name)
        rows = self._file.rows(name)[start:stop]
        if info.format is not None:
            self._check_finite(name, info.format, rows, start)
        if new is None or info.format is None:
            return rows
        try:
            return self._encode(new, info.format.decode(rows))
        except EncodeError as error:
            hint = f"; --tensor-type '^{name}$=BF16' stores it as BF16"
            raise GGUFError(f"{error.below(start)}{hint}", path=info.path, tensor=name) from None

    def _check_finite(self, name: str, old: Format, rows: Bytes, start: int) -> None:
        found = old.find_nonfinite(rows)
        if found is None:
            return
        what = "a value" if old.block_size == 1 else "a scale"
        message = f"{what} of row {start + found[0]}, block {found[1]} is NaN or infinite ({old.name})"
        raise GGUFError(message, path=self._file.tensor(name).path, tensor=name)
