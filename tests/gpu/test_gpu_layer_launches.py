"""How many launches a layer of a whole model takes in a decode step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from minfer_ir.params import DevicePlan
from minfer_ir.passes.pipeline import lower
from minfer_ir.runtime.backend import LAUNCH_GROUPS
from minfer_ir.runtime.resources import Resources
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.groups import runs_of
from minfer_models.engine import EngineOptions, Model
from minfer_models.synthetic import SyntheticModel, write_model

LAYER = 1
OF_ATTENTION = {"attention", "quantize_act"}
"""What comes between the projections: attention, and its rows in 8 bits."""


def launches(model: Model, off: frozenset[str] = frozenset(), rows: int = 1) -> list[str]:
    """The runs of one layer, by the ops of their nodes; the norm in front of a layer goes with the layer before."""
    options = EngineOptions(devices=DevicePlan(("gpu",)), kv="q8_0", n_ctx=64, fusions_off=off)
    resources = Resources([GpuBackend(torch.device("cpu"))], None)  # type: ignore[arg-type]
    state = lower(options.params(model.config, rows), model.graph, resources, stop_after="split")
    (split,) = state.splits
    runs = [members for _, members in runs_of(state.graph, split) if members[0].block == LAYER]
    return [" ".join(m.op for m in members) for members in runs]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("weights", ["Q8_0", "Q4_K"])
def test_a_layer_takes_five_launches(tmp_path: Path, architecture: str, weights: str) -> None:
    sizes = {"n_blocks": 3, "n_heads": 8, "n_kv_heads": 4, "head_dim": 64, "width": 512}
    path = write_model(tmp_path / "m.gguf", SyntheticModel(architecture, weights=weights, **sizes))
    model = Model.open(path)
    try:
        together = launches(model)
        rest = [run for run in together if not set(run.split()) <= OF_ATTENTION]
        assert len(together) == 5, together
        assert len(rest) == 4, together
        assert Counter(run.count("matmul") for run in rest) == {3: 1, 1: 3}
        apart = launches(model, frozenset(LAUNCH_GROUPS))
        assert sum(len(run.split()) for run in together) == len(apart)
        assert len(apart) >= 9
    finally:
        model.file.close()


@pytest.mark.parametrize("rows", [1, 4])
def test_grouped_attention_stores_its_rows_beside_the_queries_that_it_reads(tmp_path: Path, rows: int) -> None:
    """Rows and heads are done at different times, so the first ones' 8-bit rows must not lie over others' queries."""
    path = write_model(tmp_path / "m.gguf", SyntheticModel("llama", weights="Q8_0", n_blocks=2))
    model = Model.open(path)
    try:
        options = EngineOptions(devices=DevicePlan(("gpu",)), n_ctx=64)
        resources = Resources([GpuBackend(torch.device("cpu"))], None)  # type: ignore[arg-type]
        state = lower(options.params(model.config, rows), model.graph, resources, stop_after="allocate")
        (split,) = state.splits
        groups = [members for group, members in runs_of(state.graph, split) if group and group.reads_longer]
        assert [[m.op for m in members] for members in groups] == [["attention", "quantize_act"]] * 2
        assert state.memory is not None
        for attention, quantized in groups:
            query = state.memory.placements[state.graph.owner(attention.sources[0]), "gpu"]
            stored = state.memory.placements[quantized.id, "gpu"]
            assert query.buffer != stored.buffer
    finally:
        model.file.close()
