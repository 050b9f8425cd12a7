"""Writing GGUF files, version 3: the same content gives the same bytes, and a failure leaves no file.

Tensors are streamed: each one's data is asked for when its turn comes. Everything is written to a temporary file
beside the target, flushed to disk and renamed, so readers see the old file or the whole new one. Of several shards all
appear or none. Every tensor, the last included, is padded with zeros to the alignment.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from minfer_models.gguf import limits, shards
from minfer_models.gguf.constants import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, GGUFValueType
from minfer_models.gguf.destination import check_destination
from minfer_models.gguf.encode import MetadataLike, encode_entries, encode_string, typed_entries
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.header import MAGIC
from minfer_models.gguf.metadata import TypedValue
from minfer_models.gguf.source import TensorSource

VERSION = 3


@dataclass(frozen=True, slots=True)
class SplitRule:
    """When to begin another shard: before `max_bytes` of tensor data or `max_tensors` tensors would be exceeded.

    A tensor larger than `max_bytes` gets a shard of its own. `metadata_alone` gives the first shard no tensors.
    """

    max_bytes: int | None = None
    max_tensors: int | None = None
    metadata_alone: bool = False

    def groups(self, tensors: Sequence[TensorSource]) -> list[list[TensorSource]]:
        """The tensors of each shard, in order."""
        groups: list[list[TensorSource]] = [[]]
        n_bytes = 0
        for tensor in tensors:
            full = self.max_tensors is not None and len(groups[-1]) >= self.max_tensors
            large = self.max_bytes is not None and n_bytes + tensor.nbytes > self.max_bytes
            if groups[-1] and (full or large):
                groups.append([])
                n_bytes = 0
            groups[-1].append(tensor)
            n_bytes += tensor.nbytes
        return [[], *groups] if self.metadata_alone else groups


def write_gguf(
    path: str | os.PathLike[str],
    metadata: MetadataLike,
    tensors: Iterable[TensorSource],
    *,
    split: SplitRule | None = None,
    sources: Iterable[Path] = (),
    overwrite: bool = True,
) -> list[Path]:
    """Write a GGUF file, or the shards `NAME-00001-of-0000N.gguf` when `split` gives more than one; returns the paths.

    `metadata` is the `Metadata` of a file, or a mapping or pairs of plain or typed values (`encode.typed` says which
    GGUF type a plain value gets); its `general.alignment` (UINT32) sets the alignment. The first shard carries
    the metadata. Keys and tensors are written in the order given. `sources` are the files that the data comes from.

    Raises GGUFError, before anything is written, for repeated keys or names, a name of more than 63 bytes, a value
    out of its type's range, an empty tensor or rows that are not whole blocks, and a place that `check_destination`
    refuses; and while writing, when a tensor's data is not of the size declared. No file is left behind, and an
    existing one stays as it was.
    """
    path = Path(path)
    tensors = list(tensors)
    try:
        entries = typed_entries(metadata)
        _check(entries, tensors)
        groups = [tensors] if split is None else split.groups(tensors)
        files = _plan(path, entries, groups)
        alignment = _alignment(entries)
    except GGUFError as error:
        raise GGUFError(error.message, path=path, key=error.key, tensor=error.tensor) from None
    targets, sources = [target for target, _, _ in files], list(sources)
    for target in targets:
        check_destination(target, sources, overwrite=overwrite)
    _write_all(files, alignment)
    return targets


_Plan = tuple[Path, bytes, list[TensorSource]]


def _check(entries: Mapping[str, TypedValue], tensors: Sequence[TensorSource]) -> None:
    if len(entries) > limits.MAX_KEYS or len(tensors) > limits.MAX_TENSORS:
        raise GGUFError(f"{len(entries)} keys, {len(tensors)} tensors: more than the reader accepts")
    names: set[str] = set()
    for tensor in tensors:
        tensor.check()
        if tensor.name in names:
            raise GGUFError("given twice", tensor=tensor.name)
        names.add(tensor.name)


def _alignment(entries: Mapping[str, TypedValue]) -> int:
    entry = entries.get(ALIGNMENT_KEY)
    if entry is None:
        return DEFAULT_ALIGNMENT
    if entry.type != GGUFValueType.UINT32 or not isinstance(entry.value, int):
        raise GGUFError(f"must be UINT32, not {entry.type_name}", key=ALIGNMENT_KEY)
    fault = limits.alignment_fault(entry.value)
    if fault is not None:
        raise GGUFError(fault, key=ALIGNMENT_KEY)
    return entry.value


def _plan(path: Path, entries: Mapping[str, TypedValue], groups: list[list[TensorSource]]) -> list[_Plan]:
    """Target, header bytes and tensors of each file to write."""
    alignment, count = _alignment(entries), len(groups)
    if count == 1:
        return [(path, _header(entries, groups[0], alignment), groups[0])]
    if count > shards.MAX_SHARDS:
        raise GGUFError(f"{count} shards, more than {shards.MAX_SHARDS}")
    present = [key for key in shards.SPLIT_KEYS if key in entries]
    if present:
        raise GGUFError("the writer sets this key when it splits; leave it out", key=present[0])
    plans: list[_Plan] = []
    for no, group in enumerate(groups):
        own = _shard_entries(entries, no, count, sum(map(len, groups)))
        plans.append((shards.shard_path(path, path.stem, no, count), _header(own, group, alignment), group))
    return plans


def _shard_entries(entries: Mapping[str, TypedValue], no: int, count: int, n_tensors: int) -> dict[str, TypedValue]:
    """The first shard's metadata, or a later one's: only what is needed to read it. Types as llama.cpp writes them."""
    kept = entries if no == 0 else {key: entries[key] for key in (ALIGNMENT_KEY,) if key in entries}
    return {
        **kept,
        shards.NO_KEY: TypedValue(GGUFValueType.UINT16, no),
        shards.COUNT_KEY: TypedValue(GGUFValueType.UINT16, count),
        shards.TENSORS_KEY: TypedValue(GGUFValueType.INT32, n_tensors),
    }


def _header(entries: Mapping[str, TypedValue], tensors: Sequence[TensorSource], alignment: int) -> bytes:
    parts = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(entries)), encode_entries(entries)]
    offset = 0
    for tensor in tensors:
        ne = tensor.shape[::-1]
        dims = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
        parts += [encode_string(tensor.name), dims, struct.pack("<IQ", tensor.ggml_type, offset)]
        offset += limits.padded(tensor.nbytes, alignment)
    header = b"".join(parts)
    return header + bytes(limits.padded(len(header), alignment) - len(header)) if tensors else header


def _write_all(plans: Sequence[_Plan], alignment: int) -> None:
    """Write every file under a temporary name, then rename them all."""
    with ExitStack() as unfinished:
        written: list[tuple[Path, Path]] = []
        for target, header, tensors in plans:
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            unfinished.callback(temporary.unlink, missing_ok=True)
            _write_one(temporary, target, header, tensors, alignment)
            written.append((temporary, target))
        _rename_all(written)


def _rename_all(written: Sequence[tuple[Path, Path]]) -> None:
    """Give every file its name; when one can't have it, those that are new go again."""
    with ExitStack() as undo:
        for temporary, target in written:
            if not target.exists():
                undo.callback(target.unlink, missing_ok=True)
            temporary.replace(target)
        undo.pop_all()
    _sync_folder(written[0][1].parent)


def _sync_folder(folder: Path) -> None:
    """Flush the new names to disk, where a folder can be opened for that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_one(temporary: Path, target: Path, header: bytes, tensors: Sequence[TensorSource], alignment: int) -> None:
    try:
        with temporary.open("xb") as file:
            file.write(header)
            for tensor in tensors:
                _write_tensor(file, tensor, target)
                file.write(bytes(limits.padded(tensor.nbytes, alignment) - tensor.nbytes))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.filename is None:  # a full disk says nothing of which
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise


def _write_tensor(file: BinaryIO, tensor: TensorSource, target: Path) -> None:
    try:
        for piece in tensor.pieces():
            file.write(piece)
    except GGUFError as error:
        raise GGUFError(error.message, path=error.path or target, tensor=error.tensor) from None
