"""The canonical order of a matmul, bit for bit, against a numpy model of it, also where the integers are largest.

The model knows the order of the float32 operations and nothing of layouts, lanes or 16-bit sums: its integers come
from gguf-py. A fused multiply-add is taken in 80-bit floats: the product is exact there, and rounding the sum twice
could only differ from rounding once by a coincidence in 11 further bits that these seeds do not hit.
"""

from __future__ import annotations

import numpy as np
import pytest
from gguf_numbers import dequantize, integers, minimums, scale, with_scales
from kernel_calls import ISAS, WEIGHTS, block_of, matmul, packed, quantized, same_bits
from numpy.typing import NDArray

from minfer_ir.formats import FORMATS, Q8A32, Q8A256, WEIGHT_FORMATS
from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.decoders.kquants import CENTRE_BITS, MAGNITUDES, QUADS_PER_SUM
from minfer_kernels.cpu.weights.layouts import activation_format, layout_of

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

SIMPLE = [fmt for fmt in WEIGHTS if activation_format(fmt) == "Q8A32"]
KQUANTS = [fmt for fmt in WEIGHTS if activation_format(fmt) == "Q8A256"]
FLOATS = [fmt for fmt in WEIGHTS if activation_format(fmt) == "f32"]


def fma(x: Floats, y: Floats, z: Floats) -> Floats:
    wide = x.astype(np.longdouble) * y.astype(np.longdouble) + z.astype(np.longdouble)
    return wide.astype(np.float32)


def block_sums(w: NDArray[np.int64], q: NDArray[np.int64], block: int) -> Floats:
    """`[rows, n, n_blocks]`: exact dot products within blocks, rounded once to float32."""
    rows, n, n_blocks = len(q), len(w), w.shape[1] // block
    products = q.reshape(rows, 1, n_blocks, block) * w.reshape(1, n, n_blocks, block)
    return products.sum(axis=-1).astype(np.float32)


def simple_model(fmt: str, raw: Bytes, x: Bytes) -> Floats:
    planes = Q8A32.planes(x)
    sums = block_sums(integers(fmt, raw), planes.quants.astype(np.int64), 32)
    isums = planes.quants.reshape(len(x), -1, 32).sum(axis=-1, dtype=np.int64).astype(np.float32)
    d = scale(fmt, raw, "d")
    acc = np.zeros((len(x), len(raw)), np.float32)
    for b in range(d.shape[1]):
        acc = fma(d[None, :, b] * planes.scales[:, None, b], sums[..., b], acc)
        if layout_of(fmt, 8).has("m"):
            acc = fma(scale(fmt, raw, "m")[None, :, b], (planes.scales[:, b] * isums[:, b])[:, None], acc)
    return acc


def kquant_model(fmt: str, raw: Bytes, x: Bytes) -> Floats:
    planes = Q8A256.planes(x)
    q = planes.quants.astype(np.int64)
    sums = block_sums(integers(fmt, raw), q, 256)
    offsets = block_sums(minimums(fmt, raw), q, 256)
    d = scale(fmt, raw, "d")
    acc = np.zeros((len(x), len(raw)), np.float32)
    for b in range(d.shape[1]):
        acc = fma(d[None, :, b] * planes.scales[:, None, b], sums[..., b], acc)
        if layout_of(fmt, 8).has("dmin"):
            acc = fma(scale(fmt, raw, "dmin")[None, :, b] * planes.scales[:, None, b], -offsets[..., b], acc)
    return acc


def float_model(fmt: str, raw: Bytes, x: Floats) -> Floats:
    w = dequantize(fmt, raw)
    even, odd = np.zeros((len(x), len(w)), np.float32), np.zeros((len(x), len(w)), np.float32)
    for k in range(w.shape[1]):
        even, odd = odd, fma(x[:, k, None], w[None, :, k], even)
    return even + odd


def model(fmt: str, raw: Bytes, x: Bytes) -> Floats:
    if fmt in FLOATS:
        return float_model(fmt, raw, x.view(np.float32))
    return (simple_model if fmt in SIMPLE else kquant_model)(fmt, raw, x)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", WEIGHTS)
def test_order_is_the_documented_one(fmt: str, isa: Isa) -> None:
    rng = np.random.default_rng(7)
    for n, n_blocks in ((9, 1), (16, 3), (3, 5)):
        k = n_blocks * (block_of(fmt) if fmt not in FLOATS else 13)
        raw = WEIGHT_FORMATS[fmt].draw(rng, n, k)
        x, _ = quantized(fmt, rng.standard_normal((5, k), dtype=np.float32))
        assert same_bits(matmul(packed(fmt, raw, isa), x, isa), model(fmt, raw, x))


def extreme_activations(fmt: str, signs: NDArray[np.int8]) -> Bytes:
    """Rows of quants 127 times `signs [rows, k]`, with scale 1."""
    activation = FORMATS[activation_format(fmt)]
    return activation.encode(np.float32(127) * signs.astype(np.float32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", SIMPLE + KQUANTS)
def test_largest_integers_do_not_overflow(fmt: str, isa: Isa) -> None:
    """Every byte of the weights alike, activations of +-127: alternating, constant, or with the weights' signs."""
    k = 2 * block_of(fmt)
    fills = (0x00, 0x7F, 0x80, 0x88, 0x0F, 0xF0, 0xFF)
    rows = [with_scales(fmt, np.full((1, FORMATS[fmt].row_bytes(k)), byte, np.uint8), 1, 1) for byte in fills]
    raw = np.concatenate(rows)
    aligned = np.where(integers(fmt, raw) < 0, -1, 1).astype(np.int8)
    alternating = np.resize(np.array([1, -1], np.int8), (1, k))
    signs = np.concatenate([aligned, -aligned, alternating, np.ones((1, k), np.int8), -np.ones((1, k), np.int8)])
    x = extreme_activations(fmt, signs)
    assert same_bits(matmul(packed(fmt, raw, isa), x, isa), model(fmt, raw, x))


@pytest.mark.parametrize("fmt", KQUANTS)
def test_bounds_of_kquant_integers(fmt: str) -> None:
    quant, small = MAGNITUDES[fmt]
    drawn = integers(fmt, WEIGHT_FORMATS[fmt].draw(np.random.default_rng(0), 64, 1024))
    centre = 1 << CENTRE_BITS[fmt] if fmt in CENTRE_BITS else 0
    assert np.abs(drawn).max() <= small * max(centre, quant - centre)
    assert 2 * 127 * quant * QUADS_PER_SUM[fmt] < 2**15
    assert 256 * 127 * (quant * small + max(centre, 1) * small) < 2**31
