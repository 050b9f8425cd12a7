"""Cutting a GGUF file into shards, named and numbered as llama.cpp's `gguf-split` does, and joining them again."""

from __future__ import annotations

import os
from pathlib import Path

from minfer_models.gguf.copying import copied_metadata, copied_tensors
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.hearing import HeardBytes
from minfer_models.gguf.reader import open_gguf
from minfer_models.gguf.shards import require_whole_name
from minfer_models.gguf.writer import SplitRule, write_gguf


def split_gguf(
    source: str | os.PathLike[str],
    prefix: str | os.PathLike[str],
    rule: SplitRule,
    *,
    overwrite: bool = False,
    hear: HeardBytes | None = None,
) -> list[Path]:
    """Write `source` as shards `PREFIX-00001-of-0000N.gguf`; returns their paths. A `.gguf` after PREFIX is left out.

    The first one has the metadata, with `split.count`, `split.tensors.count` and in every shard `split.no` from 0. A
    source that is split itself is cut anew. Tensors keep their bytes and their order. `hear(tensor, bytes)` follows.

    Raises GGUFError for a source that can't be opened, a rule that gives one shard only, and a shard that would
    replace the source or, without `overwrite`, any file. Then, and after any other error, no shard is there.
    """
    prefix = Path(prefix)
    if not prefix.name:
        raise GGUFError("names no file: shards are called after it", path=prefix)
    with open_gguf(source) as file:
        tensors = copied_tensors(file, hear)
        if len(rule.groups(tensors)) < 2:
            n_bytes = sum(tensor.nbytes for tensor in tensors)
            raise GGUFError(f"all of its {len(tensors)} tensors ({n_bytes} bytes) fit in one shard", path=file.path)
        target = prefix.with_name(f"{prefix.name.removesuffix('.gguf')}.gguf")
        return write_gguf(target, copied_metadata(file), tensors, split=rule, sources=file.paths, overwrite=overwrite)


def merge_gguf(
    first_shard: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    hear: HeardBytes | None = None,
) -> Path:
    """Write all shards of the split whose first one is given as one file; returns `target`.

    What `split_gguf` made of a file that `write_gguf` wrote becomes that file again, byte for byte.
    `hear(tensor, bytes)` follows.

    Raises GGUFError naming the shard that is missing or disagrees with the first, for a file that isn't split, and for
    a target that is one of the shards, is named like one or, without `overwrite`, exists.
    """
    target = Path(target)
    with open_gguf(first_shard) as file:
        if len(file.paths) < 2:
            raise GGUFError("is not split: there is nothing to merge", path=file.path)
        require_whole_name(target)
        tensors = copied_tensors(file, hear)
        write_gguf(target, copied_metadata(file), tensors, sources=file.paths, overwrite=overwrite)
    return target
