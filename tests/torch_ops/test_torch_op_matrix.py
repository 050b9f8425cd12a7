"""The op matrix on the torch backend, on torch's cpu device: declared cases and drawn ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from minfer_ir.ops import OPS
from minfer_ir.testing.op_matrix import run_matrix, run_variant
from minfer_ir.testing.strategies import op_variants
from minfer_ir.testing.variants import Variant
from minfer_kernels.torch_ops.backend import TorchBackend


@pytest.fixture(scope="module")
def backend() -> TorchBackend:
    torch.set_num_threads(1)
    return TorchBackend("cpu")


@pytest.mark.parametrize("op", [name for name, op in OPS.items() if op.effect != "leaf"])
def test_every_case_passes(backend: TorchBackend, op: str) -> None:
    cells = list(run_matrix(backend, [OPS[op]]))
    assert [str(c) for c in cells if c.verdict != "PASS"] == []


@settings(max_examples=150)
@given(variant=op_variants())
def test_drawn_shapes_and_layouts_pass_too(backend: TorchBackend, variant: Variant) -> None:
    cell = run_variant(backend, variant)
    assert cell.verdict == "PASS", str(cell)
