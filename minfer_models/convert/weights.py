"""Weights on their way from safetensors into GGUF: chosen type, checked values, a few rows at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from minfer_ir.formats import format_named
from minfer_ir.formats.base import Bytes, Floats, Format
from minfer_models.convert.errors import ConvertError
from minfer_models.convert.permute import side_by_side
from minfer_models.convert.safetensors import SafeTensor
from minfer_models.gguf import TensorSource, type_of
from minfer_models.gguf.encoders import Encode
from minfer_models.gguf.pieces import Piece, PiecesAhead

PIECE_ELEMENTS = 1 << 18
"""Weights are read, checked and written in pieces of about this many elements: memory stays flat for any model."""
FLOAT_BYTES = 4

READ = ("F32", "F16", "BF16")
TYPES = ("auto", "f32", "f16", "bf16", "q8_0")


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the folder under its GGUF name, and the format to write; `permuted` rows are those of whole heads."""

    source: SafeTensor
    name: str
    format: Format
    head_dim: int
    permuted: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the file."""
        n = self.source.shape[-1]
        return math.prod(self.source.shape) // n * self.format.row_bytes(n)

    def source_from(self, ahead: PiecesAhead) -> TensorSource:
        """What the GGUF writer takes; its data is taken from `ahead` when it's written."""

        def chunks() -> Iterator[Bytes]:
            for _, made in ahead.of(self.name):
                yield made

        return TensorSource(self.name, self.source.shape, type_of(self.format), chunks)

    @property
    def encoded(self) -> int:
        """Elements to encode; none where the folder's bytes are the file's."""
        return 0 if self.format is format_named(self.source.dtype) else math.prod(self.source.shape)

    def pieces(self, encode: Encode) -> Iterator[Piece]:
        """The tensor's pieces in order; each is read, checked and encoded when it is made."""
        read = format_named(self.source.dtype)
        unit = self.head_dim if self.permuted else 1
        n = 1 if len(self.source.shape) == 1 and self.permuted else self.source.shape[-1]
        rows_each = max(1, PIECE_ELEMENTS // (n * unit)) * unit
        n_rows = self.source.nbytes // read.row_bytes(n)
        for start in range(0, n_rows, rows_each):
            stop = min(start + rows_each, n_rows)
            yield Piece(self.name, FLOAT_BYTES * n * (stop - start), partial(self._made, start, stop, n, encode))

    def _made(self, start: int, stop: int, n: int, encode: Encode) -> Bytes:
        read = format_named(self.source.dtype)
        raw = self.source.rows(start, stop, read.row_bytes(n))
        values = read.decode(raw)
        self._check_finite(values, start)
        if self.format is read:
            made = side_by_side(raw, self.head_dim) if self.permuted else raw
        else:
            made = self._encoded(values, start, encode)
        return made.reshape(-1, self.format.row_bytes(self.source.shape[-1]))

    def _encoded(self, values: Floats, first_row: int, encode: Encode) -> Bytes:
        try:
            return encode(self.format, side_by_side(values, self.head_dim) if self.permuted else values)
        except ValueError:
            at = int(np.argmax(np.abs(values)))
            limit = f"which {self.format.name} can't hold; --type auto, bf16 or f32 keeps it"
            raise self._error(values, first_row, at, limit) from None

    def _check_finite(self, values: Floats, first_row: int) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            raise self._error(values, first_row, int(np.argmin(finite)), "which no model can use")

    def _error(self, values: Floats, first_row: int, at: int, fault: str) -> ConvertError:
        row, element = divmod(at, values.shape[-1])
        message = f"row {first_row + row}, element {element} is {values[row, element]:g}, {fault}"
        return ConvertError(message, path=self.source.path, tensor=self.source.name)


def check_readable(tensor: SafeTensor) -> None:
    """Raise ConvertError for a dtype that isn't converted."""
    if tensor.dtype not in READ:
        message = f"is stored as {tensor.dtype}; {', '.join(READ[:-1])} and {READ[-1]} convert"
        raise ConvertError(message, path=tensor.path, tensor=tensor.name)


def format_for(tensor: SafeTensor, type_name: str) -> Format:
    """The format to write: vectors are F32, matrices `type_name`, for auto the tensor's own.

    Rows that aren't whole blocks of Q8_0 become F16, as in llama.cpp.
    """
    if len(tensor.shape) == 1:
        return format_named("F32")
    chosen = format_named(tensor.dtype if type_name == "auto" else type_name.upper())
    return format_named("F16") if tensor.shape[-1] % chosen.block_size else chosen


def equal_bytes(a: SafeTensor, b: SafeTensor) -> bool:
    """Whether two tensors hold the same bytes of the same dtype and shape."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    pairs = zip(a.pieces(PIECE_ELEMENTS, 1), b.pieces(PIECE_ELEMENTS, 1), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def is_zero(tensor: SafeTensor) -> bool:
    """Whether every byte is 0."""
    return not any(piece.any() for piece in tensor.pieces(PIECE_ELEMENTS, 1))
