"""A model file in other weight types."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from minfer_ir.formats.base import Format
from minfer_models.gguf.constants import GGUFValueType
from minfer_models.gguf.copying import copied_metadata
from minfer_models.gguf.destination import check_destination
from minfer_models.gguf.encoders import Encode, quickest_encode
from minfer_models.gguf.hearing import HeardBytes, heard
from minfer_models.gguf.metadata import TypedValue
from minfer_models.gguf.pieces import usable_cpus
from minfer_models.gguf.quantize.options import QuantizeOptions
from minfer_models.gguf.quantize.plan import Choice, plan_quantization
from minfer_models.gguf.quantize.stream import Conversion, ConvertedTensors
from minfer_models.gguf.reader import GGUFFile, open_gguf
from minfer_models.gguf.shards import require_whole_name
from minfer_models.gguf.writer import write_gguf

FILE_TYPE_KEY = "general.file_type"
VERSION_KEY = "general.quantization_version"
QUANTIZATION_VERSION = 2
"""Of the block layouts (ggml.h, GGML_QNT_VERSION)."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """The file that was written, and what became of each tensor."""

    path: Path
    choices: tuple[Choice, ...]


def quantize_gguf(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    type_name: str,
    *,
    pure: bool = False,
    keep_output: bool = False,
    output_type: str | None = None,
    token_embedding_type: str | None = None,
    tensor_types: tuple[str, ...] = (),
    allow_requantize: bool = False,
    threads: int | None = None,
    overwrite: bool = False,
    hear: HeardBytes | None = None,
    encode: Encode | None = None,
) -> Quantized:
    """Write the model `source` with its matrices in `type_name`, a format or a mix of formats such as "Q4_K_M".

    `QuantizeOptions` says what the options mean, `mixes` which tensor gets what. Vectors and norms keep their bytes,
    and so do matrices that have their type already. The metadata goes along, with `general.file_type` and
    `general.quantization_version` made right. All shards of a split source become one file. The bytes are the same
    whatever `threads` (None: one for each usable CPU) and `encode` (None: kernels where they are worth a compile, else
    numpy). `hear(tensor, bytes)` follows what is written.

    Raises ValueError for options that aren't known; GGUFError for a source that can't be opened or holds NaN or
    infinity, for a value beyond its new type's range, naming tensor, row and place, for what `plan_quantization` and
    `check_destination` refuse; OSError when the disk fails. No file is left behind then, and an existing one is as
    it was.
    """
    options = QuantizeOptions.parse(
        type_name,
        pure=pure,
        keep_output=keep_output,
        output_type=output_type,
        token_embedding_type=token_embedding_type,
        tensor_types=tensor_types,
        allow_requantize=allow_requantize,
    )
    with open_gguf(source) as file:
        return write_quantized(
            file, Path(target), options, threads=threads, overwrite=overwrite, hear=hear, encode=encode
        )


def write_quantized(
    file: GGUFFile,
    target: Path,
    options: QuantizeOptions,
    *,
    threads: int | None = None,
    overwrite: bool = False,
    hear: HeardBytes | None = None,
    encode: Encode | None = None,
) -> Quantized:
    """As `quantize_gguf`, of an open file."""
    require_whole_name(target)
    check_destination(target, file.paths, overwrite=overwrite)
    choices = plan_quantization(file, options)
    encode = encode or quickest_encode(work_of(choices))
    conversions = [Conversion(choice.info.name, choice.new) for choice in choices]
    with ConvertedTensors(file, conversions, threads or usable_cpus(), encode) as converted:
        tensors = converted.sources()
        if hear is not None:
            tensors = [heard(tensor, hear) for tensor in tensors]
        metadata = quantized_metadata(file, options.file_type.number)
        [path] = write_gguf(target, metadata, tensors, sources=file.paths, overwrite=overwrite)
    return Quantized(path, tuple(choices))


def work_of(choices: Iterable[Choice]) -> Iterator[tuple[Format, int]]:
    """Each format that something is encoded in, and how many elements."""
    for choice in choices:
        if choice.new is not None:
            yield choice.new, choice.info.n_rows * choice.info.shape[-1]


def quantized_metadata(file: GGUFFile, file_type: int) -> dict[str, TypedValue]:
    """The metadata of `file` with another file type; both keys keep their place, or come last."""
    metadata = copied_metadata(file)
    metadata[VERSION_KEY] = TypedValue(GGUFValueType.UINT32, QUANTIZATION_VERSION)
    metadata[FILE_TYPE_KEY] = TypedValue(GGUFValueType.UINT32, file_type)
    return metadata
