"""Matmul kernels of every weight format: values against gguf-py in float64, and bits that do not depend on company."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import guarded
from gguf_numbers import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import ISAS, WEIGHTS, block_of, matmul, packed, quantized, same_bits
from numpy.typing import NDArray

from minfer_ir.formats import FORMATS, WEIGHT_FORMATS
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.kernels.parts.panels import PANEL_BYTES_AMX
from minfer_kernels.cpu.weights.layouts import activation_format
from minfer_kernels.cpu.weights.packing import PackedWeight, pack

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def random_weight(rng: np.random.Generator, fmt: str, n: int, k: int) -> Bytes:
    return WEIGHT_FORMATS[fmt].draw(rng, n, k)


def random_rows(rng: np.random.Generator, fmt: str, rows: int, k: int) -> tuple[Bytes, Floats]:
    return quantized(fmt, rng.standard_normal((rows, k), dtype=np.float32))


def assert_close_to_float64(fmt: str, raw: Bytes, x: Floats, out: Floats) -> None:
    """Within a few float32 roundings per sqrt(operations) of the largest sum that the products could make."""
    w = dequantize(fmt, raw).astype(np.float64)
    block = FORMATS[fmt].block_size
    n_blocks = w.shape[1] // block
    # A block's terms are as large as its largest weight before its offset or centre is taken off.
    largest = np.abs(w).reshape(len(w), n_blocks, block).max(axis=-1)
    reach = np.abs(x).astype(np.float64).reshape(len(x), n_blocks, block).sum(axis=-1) @ largest.T
    error = np.abs(out - x.astype(np.float64) @ w.T)
    assert (error <= 4 * 2.0**-24 * np.sqrt(n_blocks) * reach).all(), (error / reach).max()


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 33])
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_values(fmt: str, n: int) -> None:
    rng = np.random.default_rng(n)
    for n_blocks in (1, 2, 7):
        k = n_blocks * block_of(fmt)
        raw = random_weight(rng, fmt, n, k)
        x, values = random_rows(rng, fmt, 6, k)
        assert_close_to_float64(fmt, raw, values, matmul(packed(fmt, raw), x, out_gap=12))


@pytest.mark.parametrize("k", [1, 2, 3, 13, 31, 127, 257])
@pytest.mark.parametrize("fmt", ["F32", "F16", "BF16"])
def test_float_weights_take_any_number_of_columns(fmt: str, k: int) -> None:
    rng = np.random.default_rng(k)
    raw = random_weight(rng, fmt, 11, k)
    x, values = random_rows(rng, fmt, 5, k)
    # What follows a row belongs to somebody else: NaN there must not reach the result.
    strided = np.full((5, 4 * k + 64), 0xFF, np.uint8)
    strided[:, : 4 * k] = x
    out = matmul(packed(fmt, raw), strided[:, : 4 * k])
    assert_close_to_float64(fmt, raw, values, out)


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_bits_of_a_token_do_not_depend_on_its_batch(fmt: str) -> None:
    """Alone, or at any place among up to 19 rows, with padded row strides and any number of threads."""
    rng = np.random.default_rng(3)
    n, k = 41, 3 * block_of(fmt)
    weight = packed(fmt, random_weight(rng, fmt, n, k))
    x, _ = random_rows(rng, fmt, 19, k)
    alone = np.concatenate([matmul(weight, x[t : t + 1]) for t in range(19)])
    padded = np.zeros((19, x.shape[1] + 128), np.uint8)
    padded[:, : x.shape[1]] = x
    for rows in (2, 3, 4, 5, 8, 11, 15, 16, 19):
        for n_threads in (1, 2, 5, 8):
            assert same_bits(matmul(weight, x[:rows], n_threads=n_threads), alone[:rows])
        assert same_bits(matmul(weight, x[19 - rows :], out_gap=4), alone[19 - rows :])
        assert same_bits(matmul(weight, padded[:rows, : x.shape[1]], n_threads=3), alone[:rows])


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_bits_of_an_output_do_not_depend_on_its_lane(fmt: str) -> None:
    rng = np.random.default_rng(4)
    n, k = 17, 2 * block_of(fmt)
    raw = random_weight(rng, fmt, n, k)
    x, _ = random_rows(rng, fmt, 5, k)
    together = matmul(packed(fmt, raw), x)
    for row in range(n):
        assert same_bits(matmul(packed(fmt, raw[row : row + 1]), x), np.ascontiguousarray(together[:, row : row + 1]))


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_instruction_sets_agree(fmt: str) -> None:
    assert Isa.PORTABLE in ISAS
    rng = np.random.default_rng(5)
    n, k = 43, 3 * block_of(fmt)
    raw = random_weight(rng, fmt, n, k)
    x, _ = random_rows(rng, fmt, 15, k)
    outs = [matmul(packed(fmt, raw, isa), x, isa, n_threads=2) for isa in ISAS]
    assert all(same_bits(out, outs[0]) for out in outs)


def test_more_rows_than_a_panel_holds() -> None:
    rng = np.random.default_rng(6)
    n, k = 16, 32 * 64
    raw = random_weight(rng, "Q8_0", n, k)
    rows = PANEL_BYTES_AMX // k * 2 + 3
    x, values = random_rows(rng, "Q8_0", rows, k)
    out = matmul(packed("Q8_0", raw), x, n_threads=2)
    assert_close_to_float64("Q8_0", raw, values, out)
    assert same_bits(out[-1:], matmul(packed("Q8_0", raw), x[-1:]))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_reads_nothing_past_its_operands(fmt: str, isa: Isa) -> None:
    rng = np.random.default_rng(10)
    k = 3 * block_of(fmt)
    weight = packed(fmt, random_weight(rng, fmt, 13, k), isa)
    x, _ = random_rows(rng, fmt, 15, k)
    at_the_edge = PackedWeight(weight.layout, weight.n, weight.k, guarded(weight.buffer))
    assert same_bits(matmul(at_the_edge, guarded(x), isa), matmul(weight, x, isa))


@pytest.mark.parametrize("fmt", WEIGHTS)
def test_no_rows_write_nothing(fmt: str) -> None:
    k = block_of(fmt)
    weight = packed(fmt, random_weight(np.random.default_rng(0), fmt, 9, k))
    x, _ = random_rows(np.random.default_rng(0), fmt, 1, k)
    assert matmul(weight, x[:0]).shape == (0, 9)


@pytest.mark.parametrize("fmt", ["Q4_1", "Q4_K", "F16"])
def test_concatenated_weights_give_the_concatenated_products(fmt: str) -> None:
    rng = np.random.default_rng(8)
    k = 2 * block_of(fmt)
    parts = [random_weight(rng, fmt, n, k) for n in (13, 5, 8)]
    x, _ = random_rows(rng, fmt, 3, k)
    separate = np.concatenate([matmul(packed(fmt, part), x) for part in parts], axis=1)
    assert same_bits(matmul(pack(FORMATS[fmt], parts, k, ISAS[0].lanes), x), np.ascontiguousarray(separate))


@pytest.mark.parametrize("fmt", [f for f in WEIGHTS if activation_format(f) != "f32"])
def test_nan_scale_of_an_activation_reaches_its_row_alone(fmt: str) -> None:
    rng = np.random.default_rng(9)
    k = 2 * block_of(fmt)
    weight = packed(fmt, random_weight(rng, fmt, 12, k))
    values = rng.standard_normal((5, k), dtype=np.float32)
    clean = matmul(weight, FORMATS[activation_format(fmt)].encode(values))
    values[2, k - 1] = np.nan
    out = matmul(weight, FORMATS[activation_format(fmt)].encode(values))
    others = [0, 1, 3, 4]
    assert np.isnan(out[2]).all() and same_bits(out[others], clean[others])


@given(
    fmt=st.sampled_from(WEIGHTS),
    n=st.integers(1, 40),
    n_blocks=st.integers(1, 6),
    rows=st.integers(1, 25),
    n_threads=st.integers(1, 9),
    isa=st.sampled_from(ISAS),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([2.0**-6, 1.0]),
)
@settings(max_examples=150, deadline=None)
def test_any_shape(
    fmt: str, n: int, n_blocks: int, rows: int, n_threads: int, isa: Isa, seed: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    k = n_blocks * block_of(fmt)
    raw = FORMATS[fmt].draw(rng, n, k, scale)
    x, values = random_rows(rng, fmt, rows, k)
    out = matmul(packed(fmt, raw, isa), x, isa, n_threads, out_gap=int(rng.integers(0, 5)) * 4)
    assert_close_to_float64(fmt, raw, values, out)
    assert same_bits(out[-1:], matmul(packed(fmt, raw), x[-1:]))
