"""The tensors a model must bring, and the check of a file against them before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minfer_ir.formats.base import Format
from minfer_models.gguf import GGUFError, GGUFFile


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor by name with its shape in numpy order; one that `may_lack` has a stated meaning when it's missing."""

    name: str
    shape: tuple[int, ...]
    may_lack: bool = False


@dataclass(frozen=True, slots=True)
class TensorFormat:
    """What the graph needs to know of a tensor in the file."""

    shape: tuple[int, ...]
    format: Format


def vocabulary_rows(file: GGUFFile) -> int:
    """Rows of the token embedding, one for every id; raises GGUFError when it is missing or no matrix."""
    info = file.tensor("token_embd.weight")
    if len(info.shape) != 2:
        raise GGUFError(f"has the shape {info.shape}, which is no matrix", path=info.path, tensor=info.name)
    return info.shape[0]


def check_tensors(file: GGUFFile, specs: Iterable[TensorSpec]) -> Mapping[str, TensorFormat]:
    """Formats of the model's tensors, by name, of those that are there.

    Raises GGUFError naming the tensor for one that is missing, has another shape than the metadata implies, is stored
    in a type that minfer doesn't read, or isn't part of the architecture: left out, it would change the model silently.
    """
    found: dict[str, TensorFormat] = {}
    # One by one: the metadata may declare two billion blocks, and the first that's missing ends it.
    for spec in specs:
        if spec.name not in file.tensors:
            if spec.may_lack:
                continue
            raise GGUFError(f"is missing; expected shape {list(spec.shape)}", path=file.path, tensor=spec.name)
        info = file.tensor(spec.name, spec.shape)
        if info.format is None:
            raise GGUFError(f"is stored as {info.type_name}, which isn't read", path=info.path, tensor=spec.name)
        if len(spec.shape) == 1 and info.format.name != "F32":
            raise GGUFError(f"is stored as {info.type_name}; vectors are read as F32", path=info.path, tensor=spec.name)
        found[spec.name] = TensorFormat(spec.shape, info.format)
    if extra := [name for name in file.tensors if name not in found]:
        raise GGUFError("isn't a tensor that this architecture uses", path=file.path, tensor=extra[0])
    return found
