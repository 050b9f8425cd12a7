"""Tiny models with every op but the products on the GPU, in a plan mixed with numpy, against numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minfer_ir.ops import OPS
from minfer_ir.params import DevicePlan
from minfer_ir.passes.fuse import FUSIONS
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.types import TensorType
from minfer_kernels.gpu.backend import GpuBackend
from minfer_models.engine import Logits, Rows, TokenSequence
from minfer_models.llm import LLM
from minfer_models.loading import load
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, llama3_factors, write_model

TOKENS = tuple(int(t) for t in np.random.default_rng(5).integers(0, 256, 11))
CHUNKS = (7, 1, 3)
FLOAT_CELLS = 1e-4
"""Both sides run float32 products over the same inputs; row ops differ by the order and rounding of float32 sums.
Measured 3.8e-6 on logits of up to 16."""
PACKED_CELLS = 5e-2
"""A key or value next to a rounding border is stored as either neighbour, a step of its block away."""
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "llama", "rope_factors": llama3_factors(32, 10000.0, 32.0)},
    "qwen2": {"architecture": "qwen2", "tied": False},
    "qwen3": {"architecture": "qwen3", "head_dim": 32},
}


class RowsOnly(GpuBackend):
    """The GPU backend without its products: a plan then gives those to the next one."""

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        if op in OPS and OPS[op].is_product:
            return "a product, which is another backend's here"
        return super().supports(op, attrs, out, operands)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"width": 128, "ffn_width": 160, "n_heads": 4, "n_kv_heads": 2, "weights": "Q5_0"}
    path = tmp_path_factory.mktemp("rows") / f"{request.param}.gguf"
    return write_model(path, SyntheticModel(**{**sizes, **MODELS[request.param]}))


def logits(llm: LLM) -> Logits:
    """Of every token, fed in chunks."""
    starts = np.cumsum([0, *CHUNKS])
    with TokenSequence(llm.engine, len(TOKENS)) as sequence:
        parts = [
            llm.engine.forward(Rows.of(sequence.id, TOKENS[at : at + n], at), "all")
            for at, n in zip(starts, CHUNKS, strict=False)
        ]
    return np.concatenate(parts)


def mixed(path: Path, kv: str, fusions_off: Sequence[str] = ()) -> tuple[Logits, set[str], dict[str, int]]:
    """Logits of the mixed plan, the ops that ran on the GPU in it, and the launches by site."""
    backends = [RowsOnly(torch.device("cpu")), NumpyBackend()]
    devices = DevicePlan(tuple(b.name for b in backends))
    options: dict[str, Any] = {"n_ctx": 16, "kv": kv, "fusions_off": fusions_off, "settings": Settings()}
    with load(path, backends=backends, devices=devices, **options) as llm:
        found = logits(llm)
        nodes = llm.engine.stage(llm.engine.params(1), "dce").graph
        ops = {n.op for n in nodes if n.backend == "gpu" and not n.is_leaf() and n.spec.effect != "view"}
        assert {n.op for n in nodes if n.backend == "numpy"} & set(OPS) - ops, "products are numpy's"
        return found, ops, dict(backends[0].probe.counts)


def alone(path: Path, kv: str) -> Logits:
    devices = DevicePlan(("numpy",))
    with load(path, backends=[NumpyBackend()], devices=devices, n_ctx=16, kv=kv, settings=Settings()) as llm:
        return logits(llm)


@pytest.mark.parametrize("kv", ["f32", "f16", "q8_0"])
def test_rows_on_the_gpu_give_the_logits_of_numpy(model: Path, kv: str) -> None:
    ours, ops, counts = mixed(model, kv)
    largest = np.abs(ours - alone(model, kv)).max()
    assert largest < (FLOAT_CELLS if kv == "f32" else PACKED_CELLS), largest
    assert {"get_rows", "rms_norm", "kv_store", "attention"} <= ops
    assert counts["launch:lookup.blocks"] == len(CHUNKS)
    assert counts["launch:norm.rms_norm"] >= len(CHUNKS)


def test_without_fusions_every_op_runs_by_itself(model: Path) -> None:
    ours, ops, counts = mixed(model, "f32", FUSIONS)
    assert np.abs(ours - alone(model, "f32")).max() < FLOAT_CELLS
    assert {"get_rows", "rms_norm", "add", "silu", "mul"} <= ops
    assert counts["launch:elementwise.silu"] == 2 * len(CHUNKS)
