"""What becomes of every tensor of a file, decided before any is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from minfer_ir.formats import format_named
from minfer_ir.formats.base import Format
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.layout import TensorInfo
from minfer_models.gguf.quantize.mixes import (
    FLOATS,
    LIFTING,
    Matrix,
    Model,
    fitting,
    is_head,
    is_values,
    type_of_matrix,
)
from minfer_models.gguf.quantize.options import QuantizeOptions
from minfer_models.gguf.reader import GGUFFile

UNTOUCHED = (
    "_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d",
    "shortconv.conv.weight", "time_mix_", "attn_rel_b.weight", ".position_embd", ".patch_embd", ".rel_pos",
)  # fmt: skip
"""Parts of the names of weights that no quantization touches, small ones that matter much (llama-quant.cpp,
`tensor_allows_quantization`)."""
UNTOUCHED_NAMES = ("position_embd.weight", "token_types.weight")
_BLOCK = re.compile(r"blk\.([0-9]+)\.(.+)\.weight")


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of one tensor: `new` is None when it is copied as it is. `note` says why, where that isn't plain.

    `wanted` is the format that `new` takes the place of where rows don't fit it, else the same.
    """

    info: TensorInfo
    new: Format | None
    wanted: Format | None = None
    note: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the new file."""
        return self.info.nbytes if self.new is None else self.info.n_rows * self.new.row_bytes(self.info.shape[-1])

    @property
    def type_name(self) -> str:
        """The type of the tensor in the new file."""
        return self.info.type_name if self.new is None else self.new.name

    @property
    def fell_back(self) -> bool:
        """Whether its rows didn't fit the format that was wanted."""
        return self.wanted is not None and self.type_name != self.wanted.name


def plan_quantization(file: GGUFFile, options: QuantizeOptions) -> list[Choice]:
    """A choice for every tensor of `file`, in its order.

    Raises GGUFError for a quantized source when `allow_requantize` is off, a source type that isn't read, experts
    (their rules aren't here; `pure` needs none), and a `tensor_types` expression that no matrix matches.
    """
    model = _model(file, options)
    values = [name for name in file.tensors if is_values(_kind(name)[0])]
    order = {name: i for i, name in enumerate(sorted(values, key=lambda name: _kind(name)[1]))}
    _check_patterns(file, options)
    choices: list[Choice] = []
    for name, info in file.tensors.items():
        kind, block = _kind(name)
        place = (order[name], len(order)) if name in order else (block, model.n_blocks)
        choices.append(_choice(file, info, Matrix(kind, _row(info), *place), model, options))
    return choices


def quantizable(info: TensorInfo) -> bool:
    """Whether a quantization may touch the tensor: a matrix of weights that isn't too small to bother."""
    if all(n == 1 for n in info.shape[:-1]):
        return False
    name = info.name
    return name.endswith("weight") and name not in UNTOUCHED_NAMES and not any(part in name for part in UNTOUCHED)


def _choice(file: GGUFFile, info: TensorInfo, matrix: Matrix, model: Model, options: QuantizeOptions) -> Choice:
    if not quantizable(info):
        return Choice(info, None)
    if options.keep_output and is_head(matrix.kind, model):
        return Choice(info, None, note="the head is kept")
    wanted, note = _wanted(info.name, matrix, model, options)
    chosen = fitting(wanted, matrix.row)
    if chosen != wanted:
        size = format_named(wanted).block_size
        note = f"rows of {matrix.row} are not whole {wanted} blocks of {size}: {chosen} instead"
    if info.format is format_named(chosen):
        return Choice(info, None, format_named(wanted) if chosen == wanted else None, note)
    _check_source(file, info, chosen, options)
    return Choice(info, format_named(chosen), format_named(wanted), note)


def _wanted(name: str, matrix: Matrix, model: Model, options: QuantizeOptions) -> tuple[str, str]:
    """The format before rows are looked at, and who asked for it when that was a person."""
    if matrix.kind == "token_embd" and options.token_embedding_type is not None:
        return options.token_embedding_type, "asked for"
    if is_head(matrix.kind, model) and options.output_type is not None:
        return options.output_type, "asked for"
    for pattern, given in options.tensor_types:
        if pattern.search(name):
            return given, "asked for"
    if options.pure:
        return options.file_type.base, ""
    return type_of_matrix(options.file_type, matrix, model), ""


def _check_source(file: GGUFFile, info: TensorInfo, chosen: str, options: QuantizeOptions) -> None:
    if info.format is None:
        message = f"is stored as {info.type_name}, which minfer doesn't read, so it can't become {chosen}"
        raise GGUFError(message, path=info.path, tensor=info.name)
    if info.format.name not in FLOATS and not options.allow_requantize:
        message = (
            f"is quantized already ({info.format.name}); making it {chosen} loses more than quantizing the original "
            "would: start from a file of F32, F16 or BF16, or allow it (--allow-requantize)"
        )
        raise GGUFError(message, path=info.path, tensor=info.name)


def _check_patterns(file: GGUFFile, options: QuantizeOptions) -> None:
    names = [info.name for info in file.tensors.values() if quantizable(info)]
    for pattern, _ in options.tensor_types:
        if not any(pattern.search(name) for name in names):
            raise GGUFError(f"no matrix of the file has a name that {pattern.pattern!r} is found in", path=file.path)


def _model(file: GGUFFile, options: QuantizeOptions) -> Model:
    tied = "output.weight" not in file.tensors
    if options.pure or options.file_type.name not in LIFTING:
        return Model(1, tied=tied)
    meta = file.metadata
    arch = meta.string("general.architecture")
    if meta.integer(f"{arch}.expert_count", 0):
        key = f"{arch}.expert_count"
        raise meta.error(key, "a mix's rules for experts are not known here; --pure gives one type to all")
    n_blocks = meta.integer(f"{arch}.block_count")
    heads = _heads(file, f"{arch}.attention.head_count", 1)
    kv_heads = _heads(file, f"{arch}.attention.head_count_kv", heads)
    sharing = heads // max(1, kv_heads)
    large = n_blocks == 80 and (arch == "qwen2" or (arch == "llama" and sharing > 1))
    return Model(n_blocks, sharing, large, tied)


def _heads(file: GGUFFile, key: str, default: int) -> int:
    """A count of heads; of counts by block the first."""
    if key in file.metadata and not isinstance(file.metadata[key], int):
        return next(iter(file.metadata.integers(key)), default)
    return file.metadata.integer(key, default)


def _kind(name: str) -> tuple[str, int]:
    """The kind of a weight, and its block's number."""
    match = _BLOCK.fullmatch(name)
    return (name.removesuffix(".weight"), 0) if match is None else (match[2], int(match[1]))


def _row(info: TensorInfo) -> int:
    return info.shape[-1] if info.shape else 1


def total_bytes(choices: Iterable[Choice]) -> tuple[int, int]:
    """Bytes of all tensors before and after."""
    listed = list(choices)
    return sum(c.info.nbytes for c in listed), sum(c.nbytes for c in listed)


def bits_per_weight(choices: Iterable[Choice]) -> float:
    """Bits of the new file's tensors for each of their elements."""
    listed = list(choices)
    return 8 * sum(c.nbytes for c in listed) / max(1, sum(math.prod(c.info.shape) for c in listed))
