"""get_rows of every weight format: the bits of gguf-py's dequantizer, wherever the rows lie."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import guarded
from gguf_numbers import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import ISAS, WEIGHTS, get_packed_rows, get_rows, same_bits

from minfer_ir.formats import FORMATS
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.weights.packing import pack


def columns(fmt: str, n: int) -> int:
    """n blocks; of the formats without blocks, an awkward number of elements."""
    return n * FORMATS[fmt].block_size if FORMATS[fmt].block_size > 1 else 7 * n + 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_bits_of_the_reference_decoder(fmt: str, isa: Isa) -> None:
    rng = np.random.default_rng(0)
    for n_blocks in (1, 3, 40):
        k = columns(fmt, n_blocks)
        table = FORMATS[fmt].draw(rng, 9, k)
        ids = np.array([8, 0, 3, 3, 0, 7], np.int32)
        wanted = dequantize(fmt, table)
        assert same_bits(wanted, FORMATS[fmt].decode(table))
        for n_threads in (1, 2, 5, 16):
            assert same_bits(get_rows(fmt, table, ids, isa, n_threads, out_gap=8), wanted[ids])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", [fmt for fmt in WEIGHTS if FORMATS[fmt].block_size > 1])
def test_any_bytes_with_finite_scales(fmt: str, isa: Isa) -> None:
    """Every quant and small scale there is, under scales from subnormal to the largest."""
    rng = np.random.default_rng(1)
    k = columns(fmt, 64)
    table = rng.integers(0, 256, (16, FORMATS[fmt].row_bytes(k)), np.uint8)
    blocks = table.reshape(16, -1, FORMATS[fmt].block_bytes).view(FORMATS[fmt].layout)[..., 0]
    scales = np.array([2.0**-24, -(2.0**-15), 2.0**-14, 0.3, -1.7, 65504.0, 0.0, -0.0], np.float16)
    for field in blocks.dtype.names:
        if blocks.dtype[field] == np.float16:
            blocks[field] = rng.choice(scales, blocks.shape)
    ids = np.arange(16, dtype=np.int32)[::-1].copy()
    assert same_bits(get_rows(fmt, table, ids, isa, 3), dequantize(fmt, table)[ids])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_reads_nothing_past_its_operands(fmt: str, isa: Isa) -> None:
    """A mapped file may end with the last row of the table."""
    table = FORMATS[fmt].draw(np.random.default_rng(3), 3, columns(fmt, 5))
    ids = np.array([2, 0, 2], np.int32)
    assert same_bits(get_rows(fmt, guarded(table), guarded(ids), isa), dequantize(fmt, table)[ids])


def test_selects_rows_of_activations() -> None:
    """With [f32]: rows of a wider buffer, as the last rows of each sequence are taken for the logits."""
    rng = np.random.default_rng(2)
    wide = np.frombuffer(rng.bytes(12 * 4 * 700), np.uint8).reshape(12, 4 * 700)
    ids = np.array([11, 4, 5], np.int32)
    out = get_rows("F32", wide[:, : 4 * 643], ids, n_threads=2)
    assert np.array_equal(out.view(np.uint8), wide[ids][:, : 4 * 643])


@given(
    fmt=st.sampled_from(WEIGHTS),
    n_rows=st.integers(1, 12),
    n_ids=st.integers(0, 20),
    n_blocks=st.integers(1, 9),
    n_threads=st.integers(1, 9),
    isa=st.sampled_from(ISAS),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_any_shape(fmt: str, n_rows: int, n_ids: int, n_blocks: int, n_threads: int, isa: Isa, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = FORMATS[fmt].draw(rng, n_rows, columns(fmt, n_blocks))
    ids = rng.integers(0, n_rows, n_ids).astype(np.int32)
    assert same_bits(get_rows(fmt, table, ids, isa, n_threads), dequantize(fmt, table)[ids])


@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_rows_of_a_packed_table_are_those_of_the_file(fmt: str, rows: int) -> None:
    """Every quant and small scale there is; groups that are full and one that isn't, from the first row to the last."""
    rng = np.random.default_rng(5)
    for n_blocks in (1, 3, 40):
        k = columns(fmt, n_blocks)
        table = FORMATS[fmt].draw(rng, 37, k)
        packed = pack(FORMATS[fmt], [table], k, rows)
        ids = np.array([36, 0, 15, 15, 16, 7, 8, 31, 32, 36], np.int32)
        for isa, n_threads in ((ISAS[0], 1), (ISAS[0], 3), (Isa.PORTABLE, 2)):
            assert same_bits(get_packed_rows(packed, ids, isa, n_threads), dequantize(fmt, table)[ids])
