"""A model as Hugging Face keeps it: a folder of JSON files and safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minfer_models.convert.errors import ConvertError
from minfer_models.convert.json_files import read_object, read_optional
from minfer_models.convert.safetensors import SafeTensor, read_tensors

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PARTS = {".json", ".jinja", ".safetensors", ".model", ".txt", ".bin"}
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt")


@dataclass(frozen=True, slots=True)
class HFFolder:
    """What a folder says; `tensors` is the union of its shards. `generation` and `tokenizer_config` may be empty."""

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    tensors: Mapping[str, SafeTensor] = field(repr=False)

    @property
    def config_path(self) -> Path:
        """Where the hyper-parameters are: for errors about them."""
        return self.path / "config.json"

    @property
    def files(self) -> list[Path]:
        """Every file of the folder that a model is made of: none of them is to be written over."""
        return [file for file in self.path.iterdir() if file.suffix in PARTS]


def open_folder(path: str | os.PathLike[str]) -> HFFolder:
    """Read every header and JSON file of a folder, and no weight.

    Raises ConvertError for a folder without config.json or safetensors files, and for anything in them that is wrong.
    """
    folder = Path(path)
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "there is no such folder"
        raise ConvertError(f"{fault}; expected the folder of a Hugging Face model, with config.json", path=folder)
    return HFFolder(
        folder,
        read_object(folder / "config.json"),
        read_optional(folder / "generation_config.json"),
        read_optional(folder / "tokenizer_config.json"),
        _tensors(folder),
    )


def _tensors(folder: Path) -> dict[str, SafeTensor]:
    if (folder / INDEX).exists():
        return _indexed(folder)
    if (folder / SINGLE).exists():
        return read_tensors(folder / SINGLE)
    others = sorted(file.name for file in folder.glob("*.safetensors"))
    if others:
        what = f"{others[0]} and {len(others) - 1} more" if len(others) > 1 else others[0]
        raise ConvertError(f"has {what}, but neither {SINGLE} nor {INDEX} (incomplete download?)", path=folder)
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if pickles:
        message = (
            f"only safetensors files are read, and {pickles[0]} can run code when it's loaded; save it as safetensors"
        )
        raise ConvertError(message, path=folder)
    raise ConvertError(f"has no {SINGLE} and no {INDEX}", path=folder)


def _indexed(folder: Path) -> dict[str, SafeTensor]:
    index = folder / INDEX
    where = read_object(index).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise ConvertError("has no weight_map with tensors", path=index)
    for name, shard in where.items():
        if not isinstance(shard, str) or not _is_plain(shard):
            raise ConvertError(f"is said to be in {shard!r:.200}, not a file of this folder", path=index, tensor=name)
    shards = sorted(set(where.values()))
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        message = f"{len(missing)} of {len(shards)} files of weights are missing: {', '.join(missing[:3])}"
        raise ConvertError(f"{message}{', ...' if len(missing) > 3 else ''}", path=folder)
    found: dict[str, SafeTensor] = {}
    for shard in shards:
        for name, tensor in read_tensors(folder / shard).items():
            if where.get(name) != shard:
                told = f"says {where[name]}" if name in where else "doesn't know it"
                raise ConvertError(f"is in this file, but {INDEX} {told}", path=folder / shard, tensor=name)
            found[name] = tensor
    lost = [name for name in where if name not in found]
    if lost:
        raise ConvertError(f"is not there, but {INDEX} says it is", path=folder / where[lost[0]], tensor=lost[0])
    return found


def _is_plain(name: str) -> bool:
    """Whether a file name stays in its folder, on any system."""
    return bool(name) and name not in {".", ".."} and not set(name) & set("/\\:\0")
