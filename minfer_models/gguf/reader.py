"""Opening GGUF files: the whole of a file, or of a set of shards, checked before anything is used."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_ir.formats.base import Format
from minfer_models.gguf import shards
from minfer_models.gguf.cursor import Cursor
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.header import Header, read_header
from minfer_models.gguf.layout import Layout, TensorInfo, lay_out
from minfer_models.gguf.metadata import Metadata


@dataclass(frozen=True, slots=True)
class _Shard:
    """One open file."""

    path: Path
    map: mmap.mmap
    header: Header
    layout: Layout
    metadata: Metadata

    def close(self) -> None:
        # Arrays over the map keep it alive, and then it cannot be closed: the last of them frees it.
        with suppress(BufferError):
            self.map.close()


class GGUFFile:
    """An open GGUF file, or all shards of a split one as a whole. Made by `open_gguf`.

    `metadata` is that of the first shard, without its `split.*` keys when there are several; `tensors` is the union
    of all shards in file order. `size` is in bytes over all shards. `problems` and `missing_bytes` are empty and 0
    unless the file was opened with `allow_incomplete`.

    Tensor data is mapped, not read. Pages come from the file when they are touched, so a file that another process
    truncates *while its bytes are being read* kills this one with SIGBUS, as with any mapped file. What
    minfer keeps of a model it copies while loading; only the loading itself is exposed. `rows` checks the file's
    present length, so a file that was truncated between opening and reading gives a GGUFError.
    """

    def __init__(self, parts: list[_Shard], problems: Iterable[GGUFError]) -> None:
        first = parts[0]
        self.path = first.path
        self.paths = [part.path for part in parts]
        self.version = first.header.version
        self.alignment = first.header.alignment
        self.metadata = first.metadata if len(parts) == 1 else _without_split(first.metadata)
        self.tensors = _union(parts)
        self.size = sum(len(part.map) for part in parts)
        self.problems = tuple(problems)
        self.missing_bytes = sum(part.layout.missing_bytes for part in parts)
        self._parts: list[_Shard] | None = parts

    @property
    def complete(self) -> bool:
        """Whether nothing is missing: no bytes, no shard, no unknown type."""
        return not self.problems

    @property
    def n_elements(self) -> int:
        """Elements of all tensors: the parameter count."""
        return sum(info.n_elements for info in self.tensors.values())

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> TensorInfo:
        """The tensor `name`; raises GGUFError when it is missing or its shape (numpy order) is not `shape`."""
        info = self.tensors.get(name)
        if info is None:
            wanted = "" if shape is None else f", which needs the shape {shape}"
            raise GGUFError(f"missing from the file{wanted}", path=self.path, tensor=name)
        if shape is not None and info.shape != shape:
            raise GGUFError(f"has the shape {info.shape}; the metadata needs {shape}", path=info.path, tensor=name)
        return info

    def rows(self, name: str) -> NDArray[np.uint8]:
        """The bytes of tensor `name`, [n_rows, row_bytes] uint8, read-only, over the mapped file: nothing is copied.

        The array stays valid after `close`. Raises GGUFError when the tensor is missing, of unknown type,
        or no longer all there.
        """
        info = self.tensor(name)
        if self._parts is None:
            raise GGUFError("the file is closed", path=info.path, tensor=name)
        if info.ggml_type is None:
            raise GGUFError(f"is of {info.type_name}: its size is not known", path=info.path, tensor=name)
        part = self._parts[info.shard]
        size = min(len(part.map), part.map.size())
        if info.nbytes > size - info.offset:
            message = f"its {info.nbytes} bytes at {info.offset} are no longer in the file, which now has {size}"
            raise GGUFError(message, path=info.path, tensor=name, offset=info.offset)
        flat = np.frombuffer(part.map, np.uint8, info.nbytes, info.offset)
        return flat.reshape(info.n_rows, info.row_bytes)

    def weight(self, name: str) -> tuple[Format, NDArray[np.uint8]]:
        """The format and rows of tensor `name`; raises GGUFError when minfer does not implement its type."""
        info = self.tensor(name)
        if info.format is None:
            message = (
                f"is of type {info.type_name}, which minfer does not implement; it has {', '.join(WEIGHT_FORMATS)}"
            )
            raise GGUFError(message, path=info.path, tensor=name)
        return info.format, self.rows(name)

    def release_pages(self) -> None:
        """Let the system drop the file's pages from this process; they come back from the file when touched again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for part in self._parts or ():
                part.map.madvise(mmap.MADV_DONTNEED)

    def will_need(self) -> None:
        """Have the system begin to read the file into memory, where it takes advice."""
        if hasattr(mmap, "MADV_WILLNEED"):
            for part in self._parts or ():
                part.map.madvise(mmap.MADV_WILLNEED)

    def close(self) -> None:
        """Close the file; arrays already taken stay valid."""
        for part in self._parts or ():
            part.close()
        self._parts = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GGUFFile({str(self.path)!r}, n_tensors={len(self.tensors)}, size={self.size})"


def open_gguf(path: str | os.PathLike[str], *, allow_incomplete: bool = False) -> GGUFFile:
    """Open a GGUF file, version 2 or 3, little-endian; for a split file, open the first shard.

    All of the header and the place of every tensor are checked. With `allow_incomplete`, a file whose data is
    short, whose shards are missing or whose tensor types are unknown still opens, for listing, and
    says so in `problems`; a header that is wrong or cut off is an error either way.

    Raises GGUFError for anything wrong with the contents, OSError when the file cannot be opened.
    """
    path = Path(path)
    with ExitStack() as opened:
        first = _open_shard(path, 0, strict=not allow_incomplete)
        opened.callback(first.close)
        parts, problems = [first], list(first.layout.problems)
        split = shards.read_split(first.metadata, path)
        if split is not None:
            shards.check_first(split, path)
            problems += _missing(split, path, strict=not allow_incomplete)
            for sibling in _siblings(split, path):
                part = _open_shard(sibling, len(parts), strict=not allow_incomplete)
                opened.callback(part.close)
                shards.check_sibling(split, part.metadata, sibling)
                parts.append(part)
                problems += part.layout.problems
        file = GGUFFile(parts, problems)
        if split is not None and len(parts) == split.count and len(file.tensors) != split.n_tensors:
            message = f"is {split.n_tensors}, but the {split.count} shards have {len(file.tensors)} tensors"
            raise first.metadata.error(shards.TENSORS_KEY, message)
        opened.pop_all()
        return file


def _open_shard(path: Path, shard: int, *, strict: bool) -> _Shard:
    if path.exists() and not path.is_file():
        raise GGUFError("not a regular file", path=path)
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise GGUFError("the file is empty", path=path, offset=0)
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise GGUFError(f"can't be mapped into memory: {error}", path=path) from None
    try:
        header = read_header(Cursor(mapped, path))
        layout = lay_out(header, len(mapped), path, shard, strict=strict)
    except BaseException:
        mapped.close()
        raise
    return _Shard(path, mapped, header, layout, Metadata(header.metadata, path))


def _missing(split: shards.Split, path: Path, *, strict: bool) -> list[GGUFError]:
    missing = shards.missing_shards(split, path)
    if not missing:
        return []
    names = ", ".join(sibling.name for sibling in missing[:3]) + (", ..." if len(missing) > 3 else "")
    problem = GGUFError(
        f"{len(missing)} of {split.count} shards are missing: {names}", path=missing[0], incomplete=True
    )
    if strict:
        raise problem
    return [problem]


def _siblings(split: shards.Split, path: Path) -> list[Path]:
    paths = [shards.shard_path(path, split.stem, no, split.count) for no in range(1, split.count)]
    return [sibling for sibling in paths if sibling.is_file()]


def _union(parts: list[_Shard]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        for info in part.layout.tensors:
            other = tensors.setdefault(info.name, info)
            if other is not info:
                message = f"appears in two shards, first in {other.path.name}"
                raise GGUFError(message, path=info.path, tensor=info.name)
    return tensors


def _without_split(metadata: Metadata) -> Metadata:
    entries = {key: value for key, value in metadata.typed_items() if key not in shards.SPLIT_KEYS}
    return Metadata(entries, metadata.path)
