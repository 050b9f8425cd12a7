"""Products of many tokens, which some instruction sets make in large tiles: the bits of the portable kernel."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import ISAS, WEIGHTS, block_of, matmul, packed, quantized, same_bits

from minfer_ir.formats import WEIGHT_FORMATS
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.weights.layouts import activation_format
from minfer_kernels.cpu.weights.packing import PackedWeight

QUANTIZED = [fmt for fmt in WEIGHTS if activation_format(fmt) != "f32"]


def operands(fmt: str, n: int, n_blocks: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and activation rows; some activation blocks are zeros, one holds the largest quants only."""
    rng = np.random.default_rng(seed)
    k = n_blocks * block_of(fmt)
    x = rng.standard_normal((rows, k), dtype=np.float32) * rng.choice([0.0, 1.0, 1000.0], (rows, 1)).astype(np.float32)
    x[rows // 2] = np.where(rng.integers(0, 2, k) == 0, -1.0, 1.0)
    return WEIGHT_FORMATS[fmt].draw(rng, n, k), quantized(fmt, x)[0]


@pytest.mark.parametrize("fmt", QUANTIZED)
@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(1, 50), n_blocks=st.integers(1, 5), rows=st.integers(14, 70), threads=st.integers(1, 3),
    gap=st.sampled_from([0, 4, 60]), seed=st.integers(0, 99),
)  # fmt: skip
def test_instruction_sets_agree_on_many_tokens(
    fmt: str, n: int, n_blocks: int, rows: int, threads: int, gap: int, seed: int
) -> None:
    raw, x = operands(fmt, n, n_blocks, rows, seed)
    expected = matmul(packed(fmt, raw, Isa.PORTABLE), x, Isa.PORTABLE)
    for isa in ISAS:
        assert same_bits(matmul(packed(fmt, raw, isa), x, isa, threads, gap), expected), isa


@pytest.mark.parametrize("n_blocks", [31, 32, 33, 64, 67])
@pytest.mark.parametrize("fmt", ["Q4_0", "Q4_1", "Q8_0"])
def test_columns_in_several_chunks(fmt: str, n_blocks: int) -> None:
    raw, x = operands(fmt, 32, n_blocks, 33, n_blocks)
    outs = [matmul(packed(fmt, raw, isa), x, isa) for isa in ISAS]
    assert all(same_bits(out, outs[-1]) for out in outs)


@pytest.mark.parametrize("fmt", QUANTIZED)
def test_tiles_read_and_write_nothing_past_their_operands(fmt: str) -> None:
    raw, x = operands(fmt, 16, 3, 32, 5)
    weight = packed(fmt, raw)
    at_the_edge = PackedWeight(weight.layout, weight.n, weight.k, guarded(weight.buffer))
    assert same_bits(matmul(at_the_edge, guarded(x), out_gap=4), matmul(packed(fmt, raw, ISAS[-1]), x, ISAS[-1]))


@pytest.mark.parametrize("fmt", QUANTIZED)
def test_an_unusable_token_spoils_no_other_of_its_tile(fmt: str) -> None:
    raw, _ = operands(fmt, 16, 2, 16, 6)
    values = np.ones((16, 2 * block_of(fmt)), np.float32)
    values[5, 3] = np.inf
    out = matmul(packed(fmt, raw), quantized(fmt, values)[0])
    assert np.isnan(out[5]).all()
    assert np.isfinite(np.delete(out, 5, axis=0)).all()
