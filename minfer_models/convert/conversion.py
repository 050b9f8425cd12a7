"""A Hugging Face folder into a GGUF file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from minfer_ir.formats.base import Format
from minfer_models.arch import ARCHITECTURES
from minfer_models.arch.config import read_config
from minfer_models.arch.tensors import TensorSpec
from minfer_models.convert.config import ConfigReader
from minfer_models.convert.errors import ConvertError
from minfer_models.convert.folder import HFFolder, open_folder
from minfer_models.convert.hparams import Hyperparameters, read_hyperparameters
from minfer_models.convert.names import EMBEDDING, HEAD, gguf_name, hf_name, is_computed
from minfer_models.convert.safetensors import SafeTensor
from minfer_models.convert.vocabulary import Notice, vocabulary_entries
from minfer_models.convert.weights import TYPES, Weight, check_readable, equal_bytes, format_for, is_zero
from minfer_models.gguf import GGUFError, Metadata, TensorSource, array_source, check_destination, write_gguf
from minfer_models.gguf.encode import typed_entries
from minfer_models.gguf.encoders import Encode, quickest_encode
from minfer_models.gguf.hearing import HeardBytes, heard
from minfer_models.gguf.pieces import PiecesAhead, usable_cpus
from minfer_models.gguf.shards import require_whole_name

FACTORS = "rope_freqs.weight"
QUANTIZATION_VERSION = 2
FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}
"""`general.file_type` (llama.h, `llama_ftype`)."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A folder checked and planned: what will be written. `fallbacks` are the matrices that couldn't have the type.

    `made` are the tensors that no file of the folder has; they come first, before `weights`.
    """

    folder: HFFolder
    metadata: dict[str, Any]
    made: list[TensorSource]
    weights: list[Weight]
    fallbacks: dict[str, Format] = field(default_factory=dict[str, Format])

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.made) + sum(weight.nbytes for weight in self.weights)

    @property
    def work(self) -> list[tuple[Format, int]]:
        """Each weight's format, and how many elements are encoded in it."""
        return [(weight.format, weight.encoded) for weight in self.weights]

    def write(
        self,
        target: Path,
        *,
        threads: int | None = None,
        overwrite: bool = False,
        hear: HeardBytes | None = None,
        encode: Encode | None = None,
    ) -> Path:
        """Write the file; raises ConvertError for values that can't be written, GGUFError for the place.

        The bytes don't depend on `threads` (None: one for each usable CPU) and `encode` (None: kernels where they are
        worth a compile, else numpy).
        """
        require_whole_name(target)
        encode = encode or quickest_encode(self.work)
        pieces = chain.from_iterable(weight.pieces(encode) for weight in self.weights)
        with PiecesAhead(pieces, threads or usable_cpus()) as ahead:
            tensors = [*self.made, *(weight.source_from(ahead) for weight in self.weights)]
            if hear is not None:
                tensors = [heard(tensor, hear) for tensor in tensors]
            return write_gguf(target, self.metadata, tensors, sources=self.folder.files, overwrite=overwrite)[0]


def plan_conversion(
    path: str | os.PathLike[str], type_name: str = "auto", *, pre: str | None = None, notice: Notice = lambda _: None
) -> Conversion:
    """Check all of a folder but its weights' values.

    type_name: what matrices become: f32, f16, bf16, q8_0 or auto, which keeps each one's own type. Vectors are F32.
    pre: the pre-tokenizer's name, overruling what the tokenizer's behaviour says. `notice` hears what is worth a line.

    Raises ConvertError naming file and tensor or key for whatever is wrong, unknown, missing or not expressed in GGUF,
    and for what minfer wouldn't run.
    """
    if type_name not in TYPES:
        raise ConvertError(f"type {type_name!r:.40} is not one of {', '.join(TYPES)}")
    folder = open_folder(path)
    config = ConfigReader(folder.config, folder.config_path)
    sizes = read_hyperparameters(config)
    found = _named(folder, sizes)
    specs = _specs(sizes, folder)
    _check_shapes(found, specs, folder)
    weights = [_weight(found[name], name, sizes, type_name) for name in specs if name in found]
    made = [] if sizes.rope_factors is None else [array_source(FACTORS, sizes.rope_factors)]
    metadata = {
        **_general(folder, sizes, weights, type_name),
        **sizes.metadata,
        **vocabulary_entries(folder, sizes.n_vocab, pre, notice),
    }
    return Conversion(folder, metadata, made, weights, _fallbacks(weights, type_name))


def convert(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    type_name: str = "auto",
    *,
    pre: str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    hear: Callable[[str, int], None] | None = None,
    notice: Notice = lambda _: None,
) -> Path:
    """Write the model in the folder `path` to the GGUF file `target`, whole or not at all; returns it.

    See `plan_conversion` for the options and what it raises, `Conversion.write` for the threads; `hear(tensor, bytes)`
    follows what is written.
    """
    target = Path(target)
    check_destination(target, overwrite=overwrite)
    plan = plan_conversion(path, type_name, pre=pre, notice=notice)
    return plan.write(target, threads=threads, overwrite=overwrite, hear=hear)


def _named(folder: HFFolder, sizes: Hyperparameters) -> dict[str, SafeTensor]:
    """The folder's tensors under their GGUF names, less those that nothing needs."""
    found: dict[str, SafeTensor] = {}
    for name, tensor in folder.tensors.items():
        ours = gguf_name(name)
        if ours is not None:
            found[ours] = tensor
        elif not is_computed(name):
            raise ConvertError(f"is not a tensor of {sizes.family.hf_class}", path=tensor.path, tensor=name)
    for name, tensor in list(found.items()):
        check_readable(tensor)
        if name.endswith("attn_output.bias") and is_zero(tensor):
            del found[name]  # transformers' llama has this bias wherever it has those of q, k and v
    head, embedding = folder.tensors.get(HEAD), folder.tensors.get(EMBEDDING)
    if sizes.tied and head is not None and embedding is not None and equal_bytes(head, embedding):
        del found["output.weight"]  # differing ones are not tied, whatever config.json says: as in transformers
    if not sizes.tied and head is None:
        raise ConvertError("is missing, and config.json doesn't tie it to the embedding", path=folder.path, tensor=HEAD)
    return found


def _specs(sizes: Hyperparameters, folder: HFFolder) -> dict[str, TensorSpec]:
    """What minfer's architecture needs for these sizes; raises ConvertError when it refuses them."""
    if sizes.n_blocks > len(folder.tensors):
        message = f"is {sizes.n_blocks}, but the folder's files have {len(folder.tensors)} tensors in all"
        raise ConvertError(message, path=folder.config_path, key="num_hidden_layers")
    arch = ARCHITECTURES[sizes.family.gguf]
    try:
        meta = Metadata(typed_entries(sizes.metadata))
        return {spec.name: spec for spec in arch.tensors(read_config(meta, arch.name, sizes.n_vocab))}
    except GGUFError as error:
        raise ConvertError(error.message, path=folder.config_path, key=error.key) from None


def _check_shapes(found: dict[str, SafeTensor], specs: dict[str, TensorSpec], folder: HFFolder) -> None:
    for name, tensor in found.items():
        if name not in specs:
            raise ConvertError("is not a tensor of this architecture", path=tensor.path, tensor=tensor.name)
        if tensor.shape != specs[name].shape:
            message = f"has the shape {list(tensor.shape)}; config.json needs {list(specs[name].shape)}"
            raise ConvertError(message, path=tensor.path, tensor=tensor.name)
    for name, spec in specs.items():
        if name not in found and not spec.may_lack:
            raise ConvertError(f"is missing; expected shape {list(spec.shape)}", path=folder.path, tensor=hf_name(name))


def _weight(tensor: SafeTensor, name: str, sizes: Hyperparameters, type_name: str) -> Weight:
    permuted = sizes.family.permuted and name.split(".")[-2] in ("attn_q", "attn_k")
    return Weight(tensor, name, format_for(tensor, type_name), sizes.head_dim, permuted)


def _fallbacks(weights: list[Weight], type_name: str) -> dict[str, Format]:
    if type_name == "auto":
        return {}
    wanted = type_name.upper()
    return {w.name: w.format for w in weights if len(w.source.shape) > 1 and w.format.name != wanted}


def _general(folder: HFFolder, sizes: Hyperparameters, weights: list[Weight], type_name: str) -> dict[str, Any]:
    matrices = [weight.format.name for weight in weights if len(weight.source.shape) > 1]
    mostly = max(set(matrices), key=matrices.count) if type_name == "auto" else type_name.upper()
    entries: dict[str, Any] = {
        "general.architecture": sizes.family.gguf,
        "general.type": "model",
        "general.name": folder.path.resolve().name,
        "general.file_type": FILE_TYPES[mostly],
    }
    if mostly == "Q8_0":
        entries["general.quantization_version"] = QUANTIZATION_VERSION
    return entries
