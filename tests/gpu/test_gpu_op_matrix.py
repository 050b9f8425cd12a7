"""The op matrix on the GPU backend, in Triton's interpreter: declared cases and drawn ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from minfer_ir.ops import OPS
from minfer_ir.testing.op_matrix import run_matrix, run_variant
from minfer_ir.testing.strategies import op_variants
from minfer_ir.testing.variants import Variant, variants
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.emit import EMITTERS

SAMPLED = {"attention": 4}
"""Ops of which every so many a case runs: a case takes up to a second, and theirs differ from one to the next."""


@pytest.fixture(scope="module")
def backend() -> GpuBackend:
    return GpuBackend(torch.device("cpu"))


@pytest.mark.parametrize("op", sorted(EMITTERS))
def test_every_case_passes_or_is_refused_with_a_reason(backend: GpuBackend, op: str) -> None:
    cells = [run_variant(backend, v) for v in list(variants(OPS[op]))[:: SAMPLED.get(op, 1)]]
    assert [str(c) for c in cells if c.verdict == "FAIL"] == []
    assert any(c.verdict == "PASS" for c in cells)


@pytest.mark.full
@pytest.mark.parametrize("op", SAMPLED)
def test_every_case_of_the_slow_ones_passes(backend: GpuBackend, op: str) -> None:
    assert [str(c) for c in run_matrix(backend, [OPS[op]]) if c.verdict != "PASS"] == []


@settings(max_examples=60)
@given(variant=op_variants())
def test_drawn_shapes_and_layouts_pass_too(backend: GpuBackend, variant: Variant) -> None:
    cell = run_variant(backend, variant)
    assert cell.verdict != "FAIL", str(cell)
