"""The op matrix on the CPU backend: declared cases and drawn ones, every instruction set, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from cpu_harness import BEST, CACHE, ISAS
from hypothesis import HealthCheck, given, settings

from minfer_ir.ops import OPS
from minfer_ir.testing.op_matrix import Bench, run_matrix, run_variant
from minfer_ir.testing.strategies import op_variants
from minfer_ir.testing.variants import Variant, variants
from minfer_kernels.cpu.backend import CpuBackend
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary

REASONS = ("activations, not ", "frequency factors must be a weight", "it stores scalars, not blocks of q8_0")
"""What declared cases may be refused for: types that plans don't pair, or that another kernel takes."""
DRAWN = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def backends() -> Iterator[dict[Isa, CpuBackend]]:
    with ExitStack() as stack:
        yield {
            isa: stack.enter_context(CpuBackend(KernelLibrary(isa, CACHE), 1 if isa is Isa.PORTABLE else 2))
            for isa in ISAS
        }


@pytest.mark.parametrize("isa", ISAS)
def test_every_cell_passes_or_is_refused_with_a_reason(backends: dict[Isa, CpuBackend], isa: Isa) -> None:
    cells = list(run_matrix(backends[isa]))
    assert [str(c) for c in cells if c.verdict == "FAIL"] == []
    refused = [str(c) for c in cells if c.verdict == "REFUSED"]
    assert [c for c in refused if not any(reason in c for reason in REASONS)] == []
    passed = {c.variant.op.name for c in cells if c.verdict == "PASS"}
    assert passed == {name for name, op in OPS.items() if op.effect != "leaf"}


@DRAWN
@given(variant=op_variants())
def test_drawn_shapes_and_layouts_pass_too(backends: dict[Isa, CpuBackend], variant: Variant) -> None:
    cell = run_variant(backends[BEST], variant)
    assert cell.verdict != "FAIL", str(cell)


def result(backend: CpuBackend, variant: Variant) -> bytes | None:
    if backend.supports(variant.op.name, variant.attrs, variant.out, variant.operands) is not None:
        return None
    bench = Bench(backend, variant, np.random.default_rng(7))
    try:
        assert bench.run() is None
        assert bench.result is not None
        return bench.result.tobytes()
    finally:
        bench.close()


def test_portable_and_vector_kernels_give_the_same_bits(backends: dict[Isa, CpuBackend]) -> None:
    compared = 0
    for op in OPS.values():
        for variant in variants(op) if op.effect not in ("leaf", "view") else ():
            results = [result(backends[isa], variant) for isa in ISAS]
            assert results == results[:1] * len(ISAS), str(variant)
            compared += results[0] is not None
    assert compared > 350
