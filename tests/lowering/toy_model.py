"""A small llama with random weights: enough structure for every pass, small enough for numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer_ir.evaluate import Weights
from minfer_ir.formats import FORMATS
from minfer_ir.graph import Graph
from minfer_ir.ops.rope import RopeScaling
from minfer_ir.params import GraphParams
from minfer_models.arch import ARCHITECTURES
from minfer_models.arch.config import ModelConfig
from minfer_models.arch.tensors import TensorFormat

CONFIG = ModelConfig(
    arch="llama",
    n_blocks=2,
    width=64,
    ffn_width=96,
    n_heads=4,
    n_kv_heads=2,
    head_dim=16,
    n_vocab=40,
    n_ctx_train=64,
    norm_eps=1e-5,
    rope_dims=16,
    rope_base=10000.0,
    rope_scaling=RopeScaling(),
)
TYPES = {"attn_v": "Q8_0", "norm": "F32", "token_embd": "Q8_0"}
"""Parts of tensor names that aren't Q4_0: v differs from q and k, so they can't all be stacked."""


@dataclass(frozen=True)
class ToyModel:
    """A graph builder and its weights."""

    arch: str
    formats: Mapping[str, TensorFormat]
    weights: Weights

    def graph(self, params: GraphParams) -> Graph:
        return ARCHITECTURES[self.arch].build(CONFIG, self.formats, params)


def toy_model(arch: str = "llama", types: Mapping[str, str] = TYPES, seed: int = 0) -> ToyModel:
    rng = np.random.default_rng(seed)
    formats: dict[str, TensorFormat] = {}
    weights = Weights()
    for spec in ARCHITECTURES[arch].tensors(CONFIG):
        if spec.may_lack:
            continue
        kind = FORMATS[next((t for part, t in types.items() if part in spec.name), "Q4_0")]
        values = rng.standard_normal(spec.shape, np.float32) * 0.15 + ("norm" in spec.name)
        formats[spec.name] = TensorFormat(spec.shape, kind)
        weights[spec.name] = kind.encode(np.atleast_2d(values).astype(np.float32))
    return ToyModel(arch, formats, weights)


def params(rows: int = 8, output_rows: int | None = 1, **changes: object) -> GraphParams:
    defaults: dict[str, object] = {"n_ctx": 32, "n_cells": 32, "window": "causal", "kv_type": "f32"}
    return GraphParams(rows=rows, output_rows=output_rows, **(defaults | changes))  # type: ignore[arg-type]


def step_inputs(ids: list[int], start: int = 0, cell: int = 0, mode: str = "causal") -> dict[str, NDArray[np.int32]]:
    """One sequence's rows whose position p lies in cell `cell` + p."""
    n = len(ids)
    positions = np.arange(start, start + n, dtype=np.int32)
    span = np.stack([np.full(n, cell), cell + positions + 1], axis=1).astype(np.int32)
    runs = np.zeros((n, 8), np.int32)
    runs[:, :2] = np.stack([np.full(n, cell), positions + 1], axis=1)
    windows = {"causal": np.array([cell], np.int32), "span": span, "map": runs}
    return {
        "token_ids": np.array(ids, np.int32),
        "positions": positions,
        "cells": positions + np.int32(cell),
        "seq_ids": np.zeros(n, np.int32),
        "window": windows[mode],
        "n_rows": np.array([n, 1], np.int32),
        "output_ids": np.array([n - 1], np.int32),
    }
