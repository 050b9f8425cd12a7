"""Tensors on their way into a file: what they are, and where their bytes come from when they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.gguf import limits
from minfer_models.gguf.constants import GGMLQuantizationType
from minfer_models.gguf.encode import utf8_bytes
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.reader import GGUFFile
from minfer_models.gguf.types import geometry

_NATIVE: dict[GGMLQuantizationType, np.dtype[Any]] = {
    GGMLQuantizationType.F32: np.dtype("<f4"),
    GGMLQuantizationType.F16: np.dtype("<f2"),
    GGMLQuantizationType.F64: np.dtype("<f8"),
    GGMLQuantizationType.I8: np.dtype("<i1"),
    GGMLQuantizationType.I16: np.dtype("<i2"),
    GGMLQuantizationType.I32: np.dtype("<i4"),
    GGMLQuantizationType.I64: np.dtype("<i8"),
}


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A tensor to write: name, shape in numpy order, type, and `chunks()`, its data in order as it is needed.

    A chunk is an array of whole rows: uint8 bytes [..., row_bytes], or numbers of the type itself (float32 for F32).
    `chunks` is called once, when the tensor's turn comes, so a writer never holds more than a chunk.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: GGMLQuantizationType
    chunks: Callable[[], Iterable[NDArray[Any]]]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; raises GGUFError for a row that is not whole blocks."""
        block_size, block_bytes = geometry(self.ggml_type)
        n = self.shape[-1] if self.shape else 1
        if n % block_size:
            message = f"rows of {n} elements are not whole {self.ggml_type.name} blocks of {block_size}"
            raise GGUFError(message, tensor=self.name)
        return n // block_size * block_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape[:-1]) * self.row_bytes

    def check(self) -> None:
        """Raise GGUFError for a name or shape that a reader would refuse."""
        n_bytes = utf8_bytes(self.name)
        if not 0 < n_bytes <= limits.MAX_TENSOR_NAME:
            raise GGUFError(f"a name of {n_bytes} bytes, not 1 to {limits.MAX_TENSOR_NAME}", tensor=self.name[:80])
        if len(self.shape) > limits.MAX_DIMS:
            raise GGUFError(f"shape {self.shape} has more than {limits.MAX_DIMS} dimensions", tensor=self.name)
        if not all(0 < n <= limits.MAX_DIM for n in self.shape):
            raise GGUFError(f"shape {self.shape} has a dimension that is not positive", tensor=self.name)

    def pieces(self) -> Iterator[memoryview]:
        """The data as byte buffers; raises GGUFError when a chunk has the wrong type or the total the wrong size."""
        left, row_bytes = self.nbytes, self.row_bytes
        native = _NATIVE.get(self.ggml_type, np.dtype(np.uint8))
        for chunk in self.chunks():
            if chunk.dtype not in {np.dtype(np.uint8), native}:
                raise GGUFError(f"a chunk of {chunk.dtype} for {self.ggml_type.name}", tensor=self.name)
            if chunk.nbytes > left or chunk.nbytes % row_bytes:
                message = f"a chunk of {chunk.nbytes} bytes; rows have {row_bytes} bytes and {left} bytes remain"
                raise GGUFError(message, tensor=self.name)
            left -= chunk.nbytes
            yield np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
        if left:
            raise GGUFError(f"its data ends {left} bytes short of {self.nbytes}", tensor=self.name)


def array_source(
    name: str,
    array: NDArray[Any],
    ggml_type: GGMLQuantizationType | None = None,
    shape: tuple[int, ...] | None = None,
) -> TensorSource:
    """A tensor held in memory.

    A float or signed integer array is written as its own type. For block types `array` holds the bytes, [...,
    row_bytes] uint8, and `ggml_type` says which; the shape follows from the two.
    """
    if ggml_type is None:
        ggml_type = next((known for known, dtype in _NATIVE.items() if dtype == array.dtype), None)
        if ggml_type is None:
            raise GGUFError(f"a {array.dtype} array has no GGUF type of its own; give one", tensor=name)
    if shape is None:
        shape = _shape(name, array, ggml_type)
    return TensorSource(name, shape, ggml_type, lambda: (array,))


def _shape(name: str, array: NDArray[Any], ggml_type: GGMLQuantizationType) -> tuple[int, ...]:
    if array.dtype != np.uint8:
        return array.shape
    block_size, block_bytes = geometry(ggml_type)
    row_bytes = array.shape[-1] if array.ndim else 1
    if row_bytes % block_bytes:
        message = f"rows of {row_bytes} bytes are not whole {ggml_type.name} blocks of {block_bytes} bytes"
        raise GGUFError(message, tensor=name)
    return (*array.shape[:-1], row_bytes // block_bytes * block_size)


def file_source(file: GGUFFile, name: str) -> TensorSource:
    """A tensor of an open file, to be copied as it is; the bytes are read when they are written."""
    info = file.tensor(name)
    if info.ggml_type is None:
        raise GGUFError(f"is of {info.type_name}: its size is not known", path=info.path, tensor=name)
    return TensorSource(name, info.shape, info.ggml_type, lambda: (file.rows(name),))
