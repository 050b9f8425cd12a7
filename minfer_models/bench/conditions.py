"""What a reader needs to judge a number and to take it again: machine, source, model, command and date."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from minfer_models.bench.machine import Machine
from minfer_models.bench.source import Source
from minfer_models.gguf import GGUFFile, open_gguf


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model file. `bytes` is its size; `types` are the bytes of the tensors of each type.

    `header_sha256` covers everything before the tensors' data: metadata, names, shapes, types and offsets, which is
    all that speed depends on, and quick to read however large the file is.
    """

    name: str
    architecture: str
    bytes: int
    parameters: int
    types: dict[str, int]
    header_sha256: str

    @classmethod
    def at(cls, path: Path) -> ModelRecord:
        """The record of the file at `path`."""
        with open_gguf(path) as file:
            return cls.of(file)

    @classmethod
    def of(cls, file: GGUFFile) -> ModelRecord:
        """The record of an opened file (of its first shard's header, when it is split)."""
        types: Counter[str] = Counter()
        for info in file.tensors.values():
            types[info.type_name] += info.nbytes
        return cls(
            name=file.path.name,
            architecture=str(file.metadata["general.architecture"]),
            bytes=file.size,
            parameters=file.n_elements,
            types=dict(types.most_common()),
            header_sha256=_header_sha256(file),
        )


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement was taken on, with what, and how. `date` in UTC."""

    date: str
    command: str
    machine: Machine
    source: Source
    model: ModelRecord

    @classmethod
    def here(cls, path: Path) -> Conditions:
        """This process's, now: made before anything is measured, so that the load average is the others'."""
        command = shlex.join(["minfer-bench", *sys.argv[1:]])
        return cls(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command,
            machine=Machine.here(),
            source=Source.of(),
            model=ModelRecord.at(path),
        )

    def record(self) -> dict[str, object]:
        """All of it as flat, named values: the last columns of a CSV."""
        machine, model = self.machine, self.model
        return {
            "model": model.name,
            "architecture": model.architecture,
            "model_bytes": model.bytes,
            "model_parameters": model.parameters,
            "model_types": " ".join(model.types),
            "model_header_sha256": model.header_sha256,
            "cpu": machine.cpu,
            "llvm_cpu": machine.llvm_cpu,
            "features": " ".join(machine.features),
            "cores": machine.cores,
            "memory_bytes": machine.memory,
            "load_average": machine.load_average,
            "system": machine.system,
            "python": machine.python,
            **{f"{package}_version": version for package, version in machine.versions.items()},
            "commit": self.source.commit,
            "dirty": self.source.dirty,
            "command": self.command,
            "date": self.date,
        }


def _header_sha256(file: GGUFFile) -> str:
    first: Path = file.path
    end = min((info.offset for info in file.tensors.values() if info.path == first), default=first.stat().st_size)
    with first.open("rb") as opened:
        return hashlib.sha256(opened.read(end)).hexdigest()
