"""Where each tensor of a file lies, checked against the bytes that are there.

Sizes are Python ints, so nothing wraps. Every tensor must start on the alignment, lie inside the data region and
overlap no other; gaps between tensors are allowed. A file that ends anywhere but at the last tensor's end, or at or
past the end of its padding, is incomplete: writers either pad the last tensor in full or not at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from minfer_ir.formats.base import Format
from minfer_models.gguf.constants import GGMLQuantizationType
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.header import Header, TensorHeader
from minfer_models.gguf.limits import padded
from minfer_models.gguf.types import format_of, geometry, known_type, type_name

_MAX_FILE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file.

    `shape` is in numpy order (the reverse of GGUF's `ne`); `offset` is absolute in the shard `path`. `ggml_type` is
    None, and `nbytes` and `row_bytes` are 0, when the type id is unknown (only in files opened with
    `allow_incomplete`). `format` is None for types that minfer does not compute with.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    ggml_type: GGMLQuantizationType | None
    format: Format | None
    offset: int
    nbytes: int
    row_bytes: int
    path: Path
    shard: int

    @property
    def type_name(self) -> str:
        """The GGML name of the type, in words for unknown ones."""
        return type_name(self.type_id)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def n_rows(self) -> int:
        """Rows of `shape[-1]` elements."""
        return math.prod(self.shape[:-1])


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of one file, the faults that still let it be listed, and the bytes it lacks."""

    tensors: list[TensorInfo]
    problems: list[GGUFError]
    missing_bytes: int


def lay_out(header: Header, size: int, path: Path, shard: int, *, strict: bool) -> Layout:
    """Place the tensors of `header` in a file of `size` bytes.

    A file that is wrong in itself raises GGUFError: sizes that no file can have, partial blocks, unaligned or
    overlapping tensors. Unknown types and missing bytes raise too when `strict`, else they are listed as problems.
    """
    data_start = padded(header.end, header.alignment)
    tensors = [_place(tensor, header.alignment, data_start, path, shard) for tensor in header.tensors]
    unknown = [(info, at) for info, at in zip(tensors, header.tensors, strict=True) if info.ggml_type is None]
    problems = [_unknown_type(info, tensor) for info, tensor in unknown]
    missing = _missing(tensors, size, header.alignment)
    if missing:
        problems.append(_incomplete(tensors, size, data_start, missing))
    if strict and problems:
        raise problems[0]
    _check_overlaps(tensors, header.tensors)
    return Layout(tensors, problems, missing)


def _place(tensor: TensorHeader, alignment: int, data_start: int, path: Path, shard: int) -> TensorInfo:
    shape = tensor.ne[::-1]
    ggml_type = known_type(tensor.type_id)
    row_bytes = 0 if ggml_type is None else _row_bytes(tensor, ggml_type, path)
    nbytes = row_bytes * math.prod(tensor.ne[1:])
    offset = data_start + tensor.offset
    if offset > _MAX_FILE or nbytes > _MAX_FILE - offset:
        what = f"shape {shape} of {type_name(tensor.type_id)}"
        message = f"{what} ({nbytes} bytes at data offset {tensor.offset}) fits in no file"
        raise GGUFError(message, path=path, tensor=tensor.name, offset=tensor.at)
    if tensor.offset % alignment:
        message = f"data offset {tensor.offset} is not a multiple of the alignment {alignment}"
        raise GGUFError(message, path=path, tensor=tensor.name, offset=tensor.at)
    fmt = None if ggml_type is None else format_of(ggml_type)
    return TensorInfo(tensor.name, shape, tensor.type_id, ggml_type, fmt, offset, nbytes, row_bytes, path, shard)


def _row_bytes(tensor: TensorHeader, ggml_type: GGMLQuantizationType, path: Path) -> int:
    block_size, block_bytes = geometry(ggml_type)
    n = tensor.ne[0] if tensor.ne else 1
    if n % block_size:
        message = f"rows of {n} elements are not whole {ggml_type.name} blocks of {block_size}"
        raise GGUFError(message, path=path, tensor=tensor.name, offset=tensor.at)
    return n // block_size * block_bytes


def _unknown_type(info: TensorInfo, tensor: TensorHeader) -> GGUFError:
    return GGUFError(f"{info.type_name}: its size is not known", path=info.path, tensor=info.name, offset=tensor.at)


def _missing(tensors: list[TensorInfo], size: int, alignment: int) -> int:
    if not tensors:
        return 0
    end = max(info.offset + info.nbytes for info in tensors)
    padded_end = padded(end, alignment)
    if size < end:
        return end - size
    return padded_end - size if end < size < padded_end else 0


def _incomplete(tensors: list[TensorInfo], size: int, data_start: int, missing: int) -> GGUFError:
    """The error about a short file; it shows the first tensor that is cut off."""
    cut = next((info for info in tensors if info.nbytes > size - info.offset), None)
    hint = f"file is shorter than declared by {missing} bytes (incomplete download?)"
    path = tensors[0].path
    if cut is None:
        return GGUFError(
            f"the file of {size} bytes ends inside the padding after its last tensor: {hint}",
            path=path,
            incomplete=True,
        )
    message = (
        f"its {cut.nbytes} bytes at data offset {cut.offset - data_start} do not fit in the "
        f"{max(0, size - data_start)} bytes of tensor data of a file of {size} bytes: {hint}"
    )
    return GGUFError(message, path=path, tensor=cut.name, offset=cut.offset, incomplete=True)


def _check_overlaps(tensors: list[TensorInfo], headers: list[TensorHeader]) -> None:
    sized = sorted((info.offset, info.nbytes, i) for i, info in enumerate(tensors) if info.ggml_type is not None)
    for (start, nbytes, i), (next_start, _, j) in pairwise(sized):
        if nbytes > next_start - start:
            other = f"tensor {tensors[i].name!r}, which has bytes {start} to {start + nbytes}"
            message = f"its bytes from {next_start} overlap {other}"
            raise GGUFError(message, path=tensors[j].path, tensor=tensors[j].name, offset=headers[j].at)
