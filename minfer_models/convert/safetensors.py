"""The safetensors format, read strictly: a u64 header length, a JSON header, the tensors' bytes without gaps.

(Specification: https://github.com/huggingface/safetensors#format.) Read here and not with the `safetensors` package,
which can hand a bfloat16 tensor to torch but not to numpy, and maps files, so that one truncated meanwhile would kill
the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.convert.errors import ConvertError
from minfer_models.convert.json_files import parse_object

PREFIX_BYTES = 8
MAX_HEADER = 1 << 24
"""Bytes. The format allows 100 MB, which can take gigabytes once parsed; real headers stay below 3 MB."""
MAX_DIMS = 8
MAX_DIM = 2**63 - 1

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SafeTensor:
    """A tensor's place: `nbytes` bytes of `dtype` (the format's name) from byte `start` of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    nbytes: int

    def rows(self, start: int, stop: int, row_bytes: int) -> NDArray[np.uint8]:
        """Rows `[stop - start, row_bytes]` of the bytes; raises ConvertError if the file shrank."""
        rows = np.empty((stop - start, row_bytes), np.uint8)
        at = self.start + start * row_bytes
        with self.path.open("rb", buffering=0) as file:
            file.seek(at)
            got = _read_into(file, rows.data.cast("B"))
        if got != rows.nbytes:
            raise ConvertError(f"the file now ends at byte {at + got}", path=self.path, tensor=self.name)
        return rows

    def pieces(self, rows_each: int, row_bytes: int) -> Iterator[NDArray[np.uint8]]:
        """All rows, up to `rows_each` at a time."""
        n_rows = self.nbytes // row_bytes
        for first in range(0, n_rows, rows_each):
            yield self.rows(first, min(first + rows_each, n_rows), row_bytes)


def read_tensors(path: Path) -> dict[str, SafeTensor]:
    """The tensors of a file by name; raises ConvertError for anything in it that contradicts the format."""
    if not path.is_file():
        raise ConvertError("is missing" if not path.exists() else "not a regular file", path=path)
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(PREFIX_BYTES)
        if len(prefix) < PREFIX_BYTES:
            raise ConvertError(f"a file of {size} bytes is no safetensors file", path=path)
        n_header = int.from_bytes(prefix, "little")
        data_start = PREFIX_BYTES + n_header
        if n_header > size - PREFIX_BYTES:
            message = f"the header is said to have {n_header} bytes, in a file of {size} (incomplete download?)"
            raise ConvertError(message, path=path)
        if n_header > MAX_HEADER:
            raise ConvertError(f"a header of {n_header} bytes, more than the {MAX_HEADER} that are read", path=path)
        header = parse_object(file.read(n_header), path, "the header")
    header.pop("__metadata__", None)
    tensors = {name: _tensor(name, entry, path, data_start) for name, entry in header.items()}
    _check_places(tensors, path, data_start, size)
    return tensors


def _read_into(file: FileIO, buffer: memoryview) -> int:
    """How many bytes came before the end: a single read may bring less than is there."""
    filled = 0
    while filled < len(buffer) and (got := file.readinto(buffer[filled:])):
        filled += got
    return filled


def _tensor(name: str, entry: Any, path: Path, data_start: int) -> SafeTensor:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise ConvertError("has no dtype, shape and data_offsets in the header", path=path, tensor=name)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ConvertError(f"is of dtype {dtype!r:.80}, whose size is not known", path=path, tensor=name)
    if not _are_counts(shape) or len(shape) > MAX_DIMS:
        message = f"its shape is {shape!r:.80}, not up to {MAX_DIMS} counts"
        raise ConvertError(message, path=path, tensor=name)
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ConvertError(f"its data_offsets are {offsets!r:.80}, no range", path=path, tensor=name)
    begin, end = offsets
    needed = math.prod(shape) * ITEM_BYTES[dtype]
    if needed != end - begin:
        message = f"{dtype} of shape {shape} takes {needed} bytes; its data_offsets [{begin}, {end}] hold {end - begin}"
        raise ConvertError(message, path=path, tensor=name)
    return SafeTensor(name, dtype, tuple(shape), path, data_start + begin, end - begin)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= MAX_DIM for item in value)


def _check_places(tensors: dict[str, SafeTensor], path: Path, data_start: int, size: int) -> None:
    """Raise unless the tensors cover the data exactly: no overlap, no hole, nothing missing, nothing left."""
    at, before = data_start, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.start, tensor.nbytes)):
        if tensor.start != at:
            fault = "overlap" if tensor.start < at else "leave a hole after"
            message = f"its bytes from {tensor.start} {fault} those of {before}, which end at {at}"
            raise ConvertError(message, path=path, tensor=tensor.name)
        at, before = tensor.start + tensor.nbytes, f"tensor {tensor.name!r:.80}"
        if at > size:
            message = f"file is shorter than declared by {_end(tensors) - size} bytes (incomplete download?)"
            raise ConvertError(message, path=path, tensor=tensor.name)
    if at != size:
        raise ConvertError(f"{size - at} bytes follow the last tensor, which ends at byte {at}", path=path)


def _end(tensors: dict[str, SafeTensor]) -> int:
    return max(tensor.start + tensor.nbytes for tensor in tensors.values())
