"""Q8A32 and Q8A256 against a scalar restatement in plain Python floats."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from format_cases import seeds, values
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats import Q8A32, Q8A256, ActivationFormat, Floats
from minfer_ir.formats.activation import SMALLEST_AMAX

FORMATS = [Q8A32, Q8A256]
by_format = pytest.mark.parametrize("fmt", FORMATS, ids=repr)


def f32(x: float) -> float:
    """Rounding a double quotient, product or sum of two float32s to float32 is what float32 arithmetic gives."""
    if math.isinf(x) or math.isnan(x):
        return x
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def quantize_block(x: list[float]) -> tuple[list[int], float]:
    if not all(map(math.isfinite, x)):
        return [0] * len(x), math.nan
    amax = max(map(abs, x))
    if amax < f32(1e-36):
        return [0] * len(x), 0.0
    r = f32(127 / amax)
    return [round(f32(v * r)) for v in x], f32(amax / 127)


def encode_row(fmt: ActivationFormat[Any], x: list[float]) -> bytes:
    blocks = [quantize_block(x[i : i + fmt.block_size]) for i in range(0, len(x), fmt.block_size)]
    quants = [q for block, _ in blocks for q in block]
    packed = struct.pack(f"<{len(quants)}b", *quants) + struct.pack(f"<{len(blocks)}f", *(d for _, d in blocks))
    if fmt is Q8A32:
        return packed + struct.pack(f"<{len(blocks)}i", *(sum(q) for q, _ in blocks))
    sums = [sum(quants[i : i + 16]) for i in range(0, len(quants), 16)]
    return packed + struct.pack(f"<{len(sums)}h", *sums)


def assert_matches(fmt: ActivationFormat[Any], x: Floats) -> None:
    got = fmt.encode(x)
    assert got.shape == (*x.shape[:-1], fmt.row_bytes(x.shape[-1]))
    for row, bytes_of_row in zip(x.reshape(-1, x.shape[-1]), got.reshape(-1, got.shape[-1]), strict=True):
        assert bytes_of_row.tobytes() == encode_row(fmt, row.tolist())


def test_geometry() -> None:
    assert Q8A32.row_bytes(576) == 576 + 18 * 4 + 18 * 4
    assert Q8A256.row_bytes(512) == 512 + 2 * 4 + 32 * 2
    assert Q8A32.row_elements(Q8A32.row_bytes(576)) == 576
    for fmt, n in ((Q8A32, 48), (Q8A256, 576)):
        with pytest.raises(ValueError, match=rf"{n} elements.*{fmt} blocks of {fmt.block_size}"):
            fmt.encode(np.zeros(n, np.float32))
        with pytest.raises(ValueError, match=rf"{fmt.block_bytes + 1} bytes"):
            fmt.planes(np.zeros(fmt.block_bytes + 1, np.uint8))


@by_format
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_encode_is_bit_equal_to_the_scalar_rules(fmt: ActivationFormat[Any], data: st.DataObject) -> None:
    assert_matches(fmt, data.draw(values(fmt.block_size, (-45, 38))))


@by_format
@given(seed=seeds, bad=st.lists(st.sampled_from([np.nan, -np.nan, np.inf, -np.inf]), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_a_nonfinite_element_makes_its_whole_block_nan(fmt: ActivationFormat[Any], seed: int, bad: list[float]) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 4 * fmt.block_size)).astype(np.float32)
    places = rng.integers(0, 4 * fmt.block_size, len(bad))
    x[1, places] = bad
    assert_matches(fmt, x)
    decoded = fmt.decode(fmt.encode(x)).reshape(2, 4, fmt.block_size)
    hit = np.zeros((2, 4), np.bool_)
    hit[1, places // fmt.block_size] = True
    assert np.array_equal(np.isnan(decoded), np.broadcast_to(hit[..., None], decoded.shape))
    assert fmt.find_nonfinite(fmt.encode(x)) == (1, places.min() // fmt.block_size)


@by_format
def test_halves_round_to_even_and_the_extremes_are_127(fmt: ActivationFormat[Any]) -> None:
    x = np.zeros(fmt.block_size, np.float32)
    x[:9] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -127]
    quants = fmt.planes(fmt.encode(x)).quants
    assert quants[:9].tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -127]


@by_format
def test_blocks_about_the_smallest_magnitude(fmt: ActivationFormat[Any]) -> None:
    below = np.nextafter(SMALLEST_AMAX, np.float32(0))
    for amax, largest in ((SMALLEST_AMAX, 127), (below, 0), (np.float32(1e-45), 0), (np.float32(0), 0)):
        x = np.full(fmt.block_size, -amax, np.float32)
        assert_matches(fmt, x)
        assert np.unique(np.abs(fmt.planes(fmt.encode(x)).quants)) == [largest]


@by_format
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_decoding_is_within_half_a_step(fmt: ActivationFormat[Any], data: st.DataObject) -> None:
    x = data.draw(values(fmt.block_size, (-30, 30)))
    blocks = x.astype(np.float64).reshape(-1, fmt.block_size)
    got = fmt.decode(fmt.encode(x)).astype(np.float64).reshape(blocks.shape)
    step = np.abs(blocks).max(axis=1, keepdims=True) / 127
    assert (np.abs(got - blocks) <= step * 0.50002).all()


@by_format
def test_planes_are_views_in_order(fmt: ActivationFormat[Any]) -> None:
    n = 2 * fmt.block_size
    data = fmt.encode(np.random.default_rng(1).standard_normal((2, 3, n)).astype(np.float32))
    planes = fmt.planes(data)
    assert planes.quants.shape == (2, 3, n) and planes.quants.dtype == np.int8
    assert planes.scales.shape == (2, 3, 2) and planes.scales.dtype == np.float32
    assert planes.sums.shape == (2, 3, 2 if fmt is Q8A32 else n // 16)
    assert planes.sums.dtype == (np.int32 if fmt is Q8A32 else np.int16)
    for plane in planes:
        before = data.copy()
        plane[1, 2, 0] += 1
        assert not np.array_equal(data, before)
    assert fmt.scales(data).shape == (2, 3, 2, 1)


def test_the_largest_sums_are_exact() -> None:
    x = np.full((2, 256), 3e38, np.float32)
    x[1] *= -1
    assert Q8A32.planes(Q8A32.encode(x)).sums.tolist() == [[32 * 127] * 8, [-32 * 127] * 8]
    assert Q8A256.planes(Q8A256.encode(x)).sums.tolist() == [[16 * 127] * 16, [-16 * 127] * 16]
