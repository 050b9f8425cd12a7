"""An opened model file: its architecture, sizes and tensor formats, all checked; no weight has been read yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from minfer_ir.formats.base import Bytes
from minfer_ir.graph import Graph
from minfer_ir.params import GraphParams
from minfer_models.arch import Architecture, architecture_of
from minfer_models.arch.config import ModelConfig, read_config
from minfer_models.arch.tensors import TensorFormat, check_tensors, vocabulary_rows
from minfer_models.gguf import GGUFFile, check_finite, check_rows, open_gguf


@dataclass(frozen=True, slots=True)
class Model:
    """A file that can be run: `architecture` builds graphs from `config` and `formats`."""

    file: GGUFFile
    architecture: Architecture
    config: ModelConfig
    formats: Mapping[str, TensorFormat]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open and check `path`; raises GGUFError naming the key or tensor for anything that can't be run."""
        file = open_gguf(path)
        try:
            return cls.of(file)
        except BaseException:
            file.close()
            raise

    @classmethod
    def of(cls, file: GGUFFile) -> Self:
        """The model in an opened file, its metadata and tensor shapes checked; raises GGUFError as `open`."""
        architecture = architecture_of(file.metadata)
        config = read_config(file.metadata, architecture.name, vocabulary_rows(file))
        return cls(file, architecture, config, check_tensors(file, architecture.tensors(config)))

    def check_vocabulary(self, n_tokens: int) -> None:
        """Raise GGUFError when the vocabulary has ids that the model has no row for; fewer are usual."""
        if n_tokens > self.config.n_vocab:
            rows = f"token_embd.weight has {self.config.n_vocab} rows"
            raise self.file.metadata.error("tokenizer.ggml.tokens", f"has {n_tokens} tokens, but {rows}")

    def graph(self, params: GraphParams) -> Graph:
        """The graph of one forward."""
        return self.architecture.build(self.config, self.formats, params)


RELEASE_EVERY = 16 << 20
"""Bytes of tensors read between two releases of the file's pages: they would add the whole file to the peak."""


class CheckedWeights:
    """The file's rows, none of which reaches a plan with a NaN or infinite scale.

    Each tensor is looked over when it's first read, unless `check` is False: then whoever takes the rows in does that
    on the way, and `refuse` names what it found. `on_read` hears the name and bytes of every tensor that is read.
    """

    def __init__(self, file: GGUFFile, on_read: Callable[[str, int], None] | None = None, check: bool = True) -> None:
        self._file, self._on_read, self._check = file, on_read, check
        self._read: set[str] = set()
        self._since_release = 0

    def rows(self, key: str) -> Bytes:
        """The tensor's rows over the mapped file; raises GGUFError naming the first block that isn't finite."""
        fmt, rows = self._file.weight(key)
        self._since_release += rows.nbytes
        if self._since_release > RELEASE_EVERY:
            self._file.release_pages()
            self._since_release = 0
        if key not in self._read:
            if self._check:
                check_rows(self._file, key, fmt, rows)
            self._read.add(key)
            if self._on_read is not None:
                self._on_read(key, rows.nbytes)
        return rows

    def refuse(self) -> None:
        """Raise GGUFError for the first block, of all tensors read so far, that isn't finite."""
        check_finite(self._file, self._read)
