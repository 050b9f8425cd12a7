"""Random weights in a model's shapes, with spreads under which activations and logits stay of natural size."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from minfer_ir.formats.base import Bytes, Floats, Format
from minfer_models.arch import architecture_of
from minfer_models.arch.config import read_config
from minfer_models.arch.tensors import TensorSpec
from minfer_models.gguf import Metadata, TensorSource, array_source, type_of, write_gguf
from minfer_models.gguf.encode import typed_entries
from minfer_models.gguf.hearing import HeardBytes, heard
from minfer_models.synthetic.model import SyntheticModel

PIECE_ELEMENTS = 1 << 22
"""Weights are drawn and written in pieces of about this many elements: memory stays flat for any model."""

NORM_STD = 0.1
"""Norm weights deviate from 1 by this: enough for a dropped or misplaced one to show."""

VOCABULARY_KINDS = ("token_embd", "output")

OWN_LOGIT = 1.0
"""How far a tied head lifts the input token's own logit, in deviations: more, and a model just repeats its input."""

LOUDNESS = 0.3
LOUDNESS_ROWS = 64
"""Runs of head rows differ in size by a log-normal factor with this deviation: some words are common, as in text.

Over logits that were all alike, the most likely token of a large vocabulary would be a near tie.
"""

HIDDEN_SIZE = {"attn_output": 0.4, "ffn_down": 0.6}
"""About the size of what these projections read: a mean over some values, and silu(gate) * up."""


def write_model(path: str | os.PathLike[str], model: SyntheticModel, hear: HeardBytes | None = None) -> Path:
    """Write `model` to a GGUF file; the same model gives the same bytes. Weights are streamed.

    `hear(tensor, bytes)` follows what is written.

    Raises GGUFError for sizes that contradict each other or rows that aren't whole blocks of their type, ValueError
    for an unknown type, before anything is written.
    """
    entries = model.gguf_metadata()
    meta = Metadata(typed_entries(entries))
    arch = architecture_of(meta)
    specs = arch.tensors(read_config(meta, arch.name, model.n_vocab))
    tensors = [_source(model, spec) for spec in specs if _has(model, spec, arch.qkv_bias == "required")]
    if hear is not None:
        tensors = [heard(tensor, hear) for tensor in tensors]
    return write_gguf(path, entries, tensors)[0]


def _has(model: SyntheticModel, spec: TensorSpec, needs_bias: bool) -> bool:
    if spec.name == "output.weight":
        return not model.tied
    if spec.name == "rope_freqs.weight":
        return model.rope_factors is not None
    if spec.name.endswith(".bias"):
        return needs_bias if model.biases is None else model.biases
    return True


def _source(model: SyntheticModel, spec: TensorSpec) -> TensorSource:
    if len(spec.shape) == 1:
        return array_source(spec.name, _vector(model, spec))
    fmt, std = model.format_of(spec.name), weight_std(model, spec)
    draw = _draw_vocabulary if _kind(spec) in VOCABULARY_KINDS else _draw
    return TensorSource(spec.name, spec.shape, type_of(fmt), partial(draw, fmt, _rng(model, spec), spec.shape, std))


def _rng(model: SyntheticModel, spec: TensorSpec) -> np.random.Generator:
    """A tensor's own stream: its values depend on no other tensor."""
    return np.random.default_rng([model.seed, zlib.crc32(spec.name.encode())])


def _vector(model: SyntheticModel, spec: TensorSpec) -> Floats:
    if spec.name == "rope_freqs.weight" and model.rope_factors is not None:
        return model.rope_factors.astype(np.float32)
    normal = _rng(model, spec).standard_normal(spec.shape, dtype=np.float32)
    if spec.name.endswith(".bias"):
        return normal * np.float32(model.bias_std)
    return 1 + normal * np.float32(NORM_STD)


def _draw(fmt: Format, rng: np.random.Generator, shape: tuple[int, ...], std: float) -> Iterator[Bytes]:
    rows, n = shape
    step = max(1, PIECE_ELEMENTS // n)
    return (fmt.draw(rng, min(step, rows - start), n, std) for start in range(0, rows, step))


def _draw_vocabulary(fmt: Format, rng: np.random.Generator, shape: tuple[int, ...], std: float) -> Iterator[Bytes]:
    rows, n = shape
    starts = range(0, rows, LOUDNESS_ROWS)
    factors = np.exp(LOUDNESS * rng.standard_normal(len(starts)))
    for start, factor in zip(starts, factors / np.sqrt(np.mean(factors**2)), strict=True):
        yield fmt.draw(rng, min(LOUDNESS_ROWS, rows - start), n, std * factor)


def weight_std(model: SyntheticModel, spec: TensorSpec) -> float:
    """The spread of matrix `spec`.

    Rows that read a normed input give outputs of about unit size. The two projections that write to the residual
    stream are sized so that what all blocks add weighs as much as the embedding, whatever the depth; under a tied
    head, so much more that `OWN_LOGIT` holds.
    """
    embedding_std = model.logit_std / math.sqrt(model.width)
    kind = _kind(spec)
    if kind in VOCABULARY_KINDS:
        return embedding_std
    unit = 1 / math.sqrt(spec.shape[1])
    if kind not in HIDDEN_SIZE:
        return unit
    added = math.sqrt(model.width) / OWN_LOGIT if model.tied else 1.0
    return unit * embedding_std * added / math.sqrt(2 * model.n_blocks) / HIDDEN_SIZE[kind]


def _kind(spec: TensorSpec) -> str:
    """`attn_q` of `blk.0.attn_q.weight`."""
    return spec.name.split(".")[-2]
