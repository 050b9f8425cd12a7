"""Planes of every weight format: packed, read back by kernels in Triton's interpreter, held to gguf-py's decoding."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats import FORMATS, WEIGHT_FORMATS
from minfer_ir.formats.base import Bytes
from minfer_ir.runtime.backend import NonFiniteWeightError
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.planes.decode import load_quads, store_weights
from minfer_kernels.gpu.planes.layouts import LAYOUTS
from minfer_kernels.gpu.weights import GpuWeight, make_weight, weight_bytes

CPU = torch.device("cpu")
QUANTIZED = [name for name, layout in LAYOUTS.items() if layout.bits]


@triton.jit
def _decode(out, quants, high, scales, sub, units, K: tl.constexpr, FORMAT: tl.constexpr, U: tl.constexpr):
    row = tl.program_id(0)
    unit = tl.program_id(1) * U + tl.arange(0, U)
    store_weights(out + row * K, quants, high, scales, sub, row, unit, unit < units, K, FORMAT, False)


@triton.jit
def _quads(out, quants, high, K: tl.constexpr, FORMAT: tl.constexpr):
    at = tl.program_id(0) * 8 + tl.arange(0, 4)
    unit = tl.zeros([1, 1], tl.int32)
    low, upper = load_quads(quants, high, tl.program_id(0), unit, unit == 0, K, FORMAT, False)
    tl.store(out + at[None, :], low)
    tl.store(out + at[None, :] + 4, upper)


def weight(name: str, rows: Bytes) -> GpuWeight:
    fmt = FORMATS[name]
    return make_weight("w", fmt, (len(rows), fmt.row_elements(rows.shape[1])), [rows], CPU)


def planes_of(held: GpuWeight) -> dict[str, torch.Tensor]:
    anything = held.planes["quants"]
    return {name: held.planes.get(name, anything) for name in ("quants", "high", "scales", "sub")}


def decoded(held: GpuWeight) -> np.ndarray:
    n, k = held.shape
    out = torch.full((n, k), float("nan"))
    _decode[(n, triton.cdiv(k // 32, 4))](out, **planes_of(held), units=k // 32, K=k, FORMAT=held.format.name, U=4)
    return out.numpy()


def drawn(name: str, seed: int, n: int, k: int) -> Bytes:
    return FORMATS[name].draw(np.random.default_rng(seed), n, k, 0.05)


def oracle(name: str, rows: Bytes) -> np.ndarray:
    return gguf.dequantize(rows, gguf.GGMLQuantizationType[name])


def test_every_weight_format_has_planes() -> None:
    assert list(LAYOUTS) == list(WEIGHT_FORMATS)


@pytest.mark.parametrize("name", QUANTIZED)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 3), blocks=st.integers(1, 3))
def test_kernels_read_what_gguf_py_decodes(name: str, seed: int, n: int, blocks: int) -> None:
    rows = drawn(name, seed, n, blocks * FORMATS[name].block_size)
    np.testing.assert_array_equal(decoded(weight(name, rows)), oracle(name, rows))


@pytest.mark.parametrize("name", QUANTIZED)
def test_any_bytes_keep_their_quants(name: str) -> None:
    """Scales from a draw, but every other byte at random, so that no bit of a quant or sub-scale is always 0."""
    rows = drawn(name, 7, 4, 2 * FORMATS[name].block_size)
    np.testing.assert_array_equal(decoded(weight(name, rows)), oracle(name, rows))
    flipped = rows ^ np.uint8(0xFF)
    blocks = flipped.reshape(-1, FORMATS[name].block_bytes).view(FORMATS[name].layout)  # type: ignore[attr-defined]
    for field in FORMATS[name].scale_fields:  # type: ignore[attr-defined]
        blocks[field] = np.float16(0.25)
    np.testing.assert_array_equal(decoded(weight(name, flipped)), oracle(name, flipped))


@pytest.mark.parametrize("name", QUANTIZED)
def test_quads_lie_as_the_words_of_an_activation_row(name: str) -> None:
    fmt = FORMATS[name]
    held = weight(name, drawn(name, 3, 2, fmt.block_size))
    planes = planes_of(held)
    out = torch.zeros((2, 8), dtype=torch.int32)
    _quads[(2,)](out, planes["quants"], planes["high"], K=fmt.block_size, FORMAT=name)
    quants = out.numpy().view(np.int8).astype(np.float64) - LAYOUTS[name].centre
    values = decoded(held)[:, :32].astype(np.float64)
    for half in (slice(0, 16), slice(16, 32)):
        # One scale and minimum per half: values are an affine function of the quants.
        for row in range(2):
            fitted = np.polynomial.polynomial.polyfit(quants[row, half], values[row, half], 1)
            np.testing.assert_allclose(
                fitted[0] + fitted[1] * quants[row, half], values[row, half], rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n not in QUANTIZED])
def test_floats_keep_their_bits_and_pad_their_rows(name: str) -> None:
    rows = drawn(name, 1, 3, 17)
    (plane,) = weight(name, rows).planes.values()
    assert plane.shape[1] * plane.element_size() % 16 == 0
    np.testing.assert_array_equal(plane[:, :17].float().numpy(), FORMATS[name].decode(rows))
    assert not plane[:, 17:].float().any()


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_memory_that_was_announced_is_what_is_held(name: str) -> None:
    fmt = FORMATS[name]
    backend = GpuBackend(CPU)
    k = 3 * fmt.block_size
    parts = [drawn(name, 1, 5, k), drawn(name, 2, 2, k)]
    backend.register_weight("w", fmt, (7, k), parts, frozenset({"matmul"}))
    need = backend.weight_need(fmt, (7, k), frozenset({"matmul"}))
    assert backend.weight_bytes() == need == weight_bytes(fmt, (7, k))
    assert need < 1.25 * sum(p.nbytes for p in parts) + 7 * 64


@pytest.mark.parametrize("name", LAYOUTS)
def test_stacked_parts_are_the_matrices_below_each_other(name: str) -> None:
    fmt = FORMATS[name]
    first, second = (drawn(name, seed, n, fmt.block_size) for seed, n in ((1, 2), (2, 3)))
    stacked = make_weight("w", fmt, (5, fmt.block_size), [first, second], CPU)
    whole = weight(name, np.concatenate([first, second]))
    for plane, tensor in stacked.planes.items():
        assert torch.equal(tensor.view(torch.uint8), whole.planes[plane].view(torch.uint8)), plane


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_scale_that_isnt_finite_is_refused(name: str, bad: float) -> None:
    fmt = FORMATS[name]
    rows = drawn(name, 1, 2, fmt.block_size).copy()
    if name in QUANTIZED:
        rows.reshape(-1, fmt.block_bytes).view(fmt.layout)["d"][1] = bad  # type: ignore[attr-defined]
    else:
        one = np.array([[bad]], np.float32)
        rows[1, : fmt.block_bytes] = fmt.encode(one)[0]
    with pytest.raises(NonFiniteWeightError, match="weight w"):
        weight(name, rows)
