"""Whole tiny models on the torch backend, against numpy evaluation and against the CPU backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gates import EXACT, KL_MEAN, divergence
from model_steps import by_chunks, exact_logits, opened

from minfer_ir.params import DevicePlan
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_kernels.torch_ops.backend import TorchBackend
from minfer_models.engine import EngineError
from minfer_models.llm import LLM
from minfer_models.loading import load
from minfer_models.settings import Settings
from minfer_models.synthetic import SyntheticModel, write_model

TOKENS = tuple(int(t) for t in np.random.default_rng(3).integers(0, 256, 24))
CHUNKS = (16, 1, 1, 4, 2)


def on_torch(path: Path, *, weights: torch.dtype | None = None, **options: str) -> LLM:
    backend = TorchBackend("cpu", weights)
    return load(path, backends=[backend], devices=DevicePlan(("torch",)), settings=Settings(), n_ctx=32, **options)


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torch") / f"{request.param}.gguf"
    return write_model(path, SyntheticModel(architecture=request.param, weights="Q4_K"))


def test_float_cells_give_the_evaluated_logits(model: Path) -> None:
    with on_torch(model, kv="f32") as llm:
        ours = by_chunks(llm, TOKENS, CHUNKS)
    assert np.abs(ours - exact_logits(model, TOKENS)).max() < EXACT


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_packed_cells_round_as_the_references_do(model: Path, kv: str) -> None:
    with on_torch(model, kv=kv) as llm:
        ours = by_chunks(llm, TOKENS, CHUNKS)
    backends, devices = [NumpyBackend()], DevicePlan(("numpy",))
    with load(model, backends=backends, devices=devices, settings=Settings(), n_ctx=32, kv=kv) as llm:
        expected = by_chunks(llm, TOKENS, CHUNKS)
    assert np.abs(ours - expected).max() < EXACT


@pytest.mark.parametrize("kv", ["f32", "f16", "q8_0"])
def test_it_says_what_the_cpu_backend_says(model: Path, kv: str) -> None:
    with on_torch(model, kv=kv) as llm, opened(model, kv=kv, n_ctx=32) as cpu:
        found = divergence(by_chunks(cpu, TOKENS, CHUNKS), by_chunks(llm, TOKENS, CHUNKS))
    # 8-bit cells amplify what rounded activations (the CPU's alone) change in keys; measured up to 0.0061 (qwen3)
    assert found.kl.mean() < KL_MEAN * (2 if kv == "q8_0" else 1), str(found)


def test_float16_weights_take_half_the_memory(model: Path) -> None:
    with on_torch(model, kv="f32") as whole, on_torch(model, kv="f32", weights=torch.float16) as half:
        found = divergence(by_chunks(whole, TOKENS, CHUNKS), by_chunks(half, TOKENS, CHUNKS))
        sizes = [llm.engine.resources.backends["torch"].weight_bytes() for llm in (whole, half)]
    assert 0 < found.largest < 0.1, str(found)
    assert sizes[1] < 0.6 * sizes[0]


def test_the_memory_it_asks_for_is_the_memory_it_takes(model: Path) -> None:
    with on_torch(model) as llm:
        executable = llm.engine.executable(llm.engine.params(1))
        demand = llm.engine.resources.demand("torch", executable.graph, executable.plan)
    assert demand.weights > 0
    assert demand.weights_need == 0


def test_it_promises_no_bits(model: Path) -> None:
    with pytest.raises(EngineError, match="invariant: torch on cpu makes no promise about bits; cuda and cpu do"):
        load(model, device="torch:cpu", invariant=True)


def test_its_plan_names_the_device_as_it_is_asked_for(model: Path) -> None:
    lines: list[str] = []
    load(model, device="torch:cpu", n_ctx=32, on_device=lines.append).close()
    assert lines[0] == "device: torch on cpu"
    assert lines[1].startswith("offload: 2 of 2 blocks on torch:cpu, embedding and head too")
