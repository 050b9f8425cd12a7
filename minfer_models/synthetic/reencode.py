"""A real file's weights in another type: the same model for measuring how speed depends on the type alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from minfer_ir.formats import format_named
from minfer_models.arch import architecture_of
from minfer_models.arch.config import read_config
from minfer_models.arch.tensors import vocabulary_rows
from minfer_models.gguf import GGUFError, GGUFFile, TypedValue, open_gguf, write_gguf
from minfer_models.gguf.constants import GGUFValueType
from minfer_models.gguf.hearing import HeardBytes, heard
from minfer_models.gguf.pieces import usable_cpus
from minfer_models.gguf.quantize.mixes import FILE_TYPES
from minfer_models.gguf.quantize.quantize import FILE_TYPE_KEY
from minfer_models.gguf.quantize.stream import Conversion, ConvertedTensors
from minfer_models.synthetic.mixes import type_of_matrix

KEPT = ("token_embd", "output")
"""The embedding and the head stay as they are: they are large in small models, and would hide what the type does."""


def reencode(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    type_name: str,
    hear: HeardBytes | None = None,
) -> Path:
    """Write the model `source` with the matrices of its blocks in `type_name`, a format or a mix; returns `target`.

    They are decoded to float32 and encoded again, so what the source's type lost stays lost. Embedding, head and
    vectors keep their bytes. Rows that aren't whole blocks get what `minfer quantize` gives them. `hear(tensor, bytes)`
    follows what is written.

    Raises GGUFError when `source` can't be run, ValueError for an unknown type, and a value beyond the type's range;
    no file is left behind then.
    """
    with open_gguf(source) as file:
        name = architecture_of(file.metadata).name
        n_blocks = read_config(file.metadata, name, vocabulary_rows(file)).n_blocks
        conversions = [_conversion(file, tensor, type_name, n_blocks) for tensor in file.tensors]
        with ConvertedTensors(file, conversions, usable_cpus()) as converted:
            tensors = converted.sources()
            if hear is not None:
                tensors = [heard(tensor, hear) for tensor in tensors]
            return write_gguf(target, _metadata(file, type_name), tensors, sources=file.paths)[0]


def _metadata(file: GGUFFile, type_name: str) -> Iterator[tuple[str, TypedValue]]:
    mostly = FILE_TYPES.get(type_name.upper())
    for key, value in file.metadata.typed_items():
        if key == FILE_TYPE_KEY:
            if mostly is not None:
                yield key, TypedValue(GGUFValueType.UINT32, mostly.number)
        else:
            yield key, value


def _conversion(file: GGUFFile, name: str, type_name: str, n_blocks: int) -> Conversion:
    info = file.tensors[name]
    kind = name.split(".")[-2]
    if len(info.shape) != 2 or kind in KEPT:
        return Conversion(name, None)
    if info.format is None:
        raise GGUFError(f"is stored as {info.type_name}, which isn't read", path=info.path, tensor=name)
    block = int(name.split(".")[1])
    fmt = format_named(type_of_matrix(type_name, kind, info.shape[-1], block, n_blocks))
    return Conversion(name, None if fmt is info.format else fmt)
