"""Encoding: bit-equal to gguf-py where it encodes, within a stated bound elsewhere."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from format_cases import BLOCK_NAMES, GEOMETRY, WEIGHT_NAMES, values
from gguf import GGMLQuantizationType
from gguf import quants as gguf_quants
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from minfer_ir.formats import WEIGHT_FORMATS, Floats

Doubles = NDArray[np.float64]

GGUF_ENCODES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")

# Root mean square error of a block over the largest error's natural yardstick: the range of the block with 0 in it.
# Q4_0 to Q8_0: half a step (a whole step for the value opposite the extreme), and the float16 rounding of d.
# Affine K-quants, L quant steps and S scale steps: 1 / 2L for the sub-block, 1 / 2S each for its scale and offset.
# Centred K-quants: a whole step of the sub-block's magnitude and half a step of its scale. IQ4_NL: its top gap.
RMS_BOUND = {
    "Q4_0": 1 / 8,
    "Q4_1": 1 / 30,
    "Q5_0": 1 / 16,
    "Q5_1": 1 / 62,
    "Q8_0": 1 / 254,
    "Q2_K": 1 / 6 + 1 / 15,
    "Q3_K": 1 / 4 + 1 / 32,
    "Q4_K": 1 / 30 + 1 / 63,
    "Q5_K": 1 / 62 + 1 / 63,
    "Q6_K": 1 / 32 + 1 / 128,
    "IQ4_NL": 14 / 127,
}
F16_ROUNDING = 2.0**-10
# Scales are multiples of 2**-24 and reach a value times the largest quant and integer scale, offsets times the latter.
SMALLEST_STEP = {
    "Q4_0": 8, "Q4_1": 15, "Q5_0": 16, "Q5_1": 31, "Q8_0": 127, "IQ4_NL": 127,
    "Q2_K": 4 * 15, "Q3_K": 4 * 32, "Q4_K": 16 * 63, "Q5_K": 32 * 63, "Q6_K": 32 * 128,
}  # fmt: skip


def block_errors(name: str, x: Floats) -> tuple[Doubles, Doubles]:
    """Per block: root mean square error of an encode and decode, and the block's range with 0 in it."""
    fmt = WEIGHT_FORMATS[name]
    blocks = x.astype(np.float64).reshape(-1, fmt.block_size)
    error = fmt.decode(fmt.encode(x)).astype(np.float64).reshape(blocks.shape) - blocks
    reach = np.maximum(blocks.max(axis=1), 0) - np.minimum(blocks.min(axis=1), 0)
    return np.sqrt((error**2).mean(axis=1)), reach


@pytest.mark.parametrize("name", GGUF_ENCODES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_encode_is_bit_equal_to_gguf(name: str, data: st.DataObject) -> None:
    x = data.draw(values(32))
    assert np.array_equal(WEIGHT_FORMATS[name].encode(x), quantize(x, GGMLQuantizationType[name]))


@pytest.mark.parametrize("name", GGUF_ENCODES)
def test_encode_of_several_pieces_is_bit_equal_to_gguf(name: str) -> None:
    x = np.random.default_rng(4).standard_normal((3, 40000)).astype(np.float32)
    assert np.array_equal(WEIGHT_FORMATS[name].encode(x), quantize(x, GGMLQuantizationType[name]))


@pytest.mark.parametrize("name", GGUF_ENCODES)
def test_ties_round_as_gguf_does(name: str) -> None:
    rng = np.random.default_rng(10)
    x = (rng.integers(-254, 255, (64, 32)) / 2).astype(np.float32)  # halves of a step once the extreme is a whole one
    x[:, 0] = np.repeat([127.0, -127.0, 64.0, -128.0], 16)
    assert np.array_equal(WEIGHT_FORMATS[name].encode(x), quantize(x, GGMLQuantizationType[name]))


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_iq4_nl_takes_the_nearest_level(data: st.DataObject) -> None:
    """Under the scale before it is rounded to float16, as ggml: up to half of that step away, once for each level."""
    fmt = WEIGHT_FORMATS["IQ4_NL"]
    blocks = data.draw(values(32)).reshape(-1, 32)
    encoded = fmt.encode(blocks)
    scales, table = fmt.scales(encoded)[..., 0], np.array(gguf_quants.IQ4_NL.kvalues)
    levels = scales.astype(np.float64) * table
    nearest = np.abs(blocks[..., None] - levels[:, None, :]).min(axis=-1)
    error = np.abs(fmt.decode(encoded) - blocks.astype(np.float64))
    rounding = np.abs(np.spacing(scales.astype(np.float16)).astype(np.float64)) * np.abs(table).max()
    assert (error <= nearest + rounding + 1e-6 * np.abs(levels).max(axis=1, keepdims=True)).all()


@pytest.mark.parametrize("name", BLOCK_NAMES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_encode_error_is_within_its_bound(name: str, data: st.DataObject) -> None:
    error, reach = block_errors(name, data.draw(values(WEIGHT_FORMATS[name].block_size, (-9, 3))))
    bound = (RMS_BOUND[name] + F16_ROUNDING) * reach + SMALLEST_STEP[name] * 2.0**-25
    assert (error <= bound).all(), (error / bound).max()


# Measured root mean square errors on normal values, in per cent of their deviation, and a twentieth above.
@pytest.mark.parametrize(
    ("name", "per_cent"),
    [("Q2_K", 29.7), ("Q3_K", 15.0), ("Q4_K", 7.09), ("Q5_K", 3.60), ("Q6_K", 1.77), ("IQ4_NL", 7.60)],
)
def test_encode_of_normal_values_keeps_its_quality(name: str, per_cent: float) -> None:
    x = np.random.default_rng(5).standard_normal((32, 1024)).astype(np.float32)
    error, _ = block_errors(name, x)
    assert np.sqrt((error**2).mean()) <= per_cent / 100 * 1.05


# Sub-blocks of one sign beside sub-blocks of the other, in thousandths of the whole range.
@pytest.mark.parametrize(("name", "per_mille"), [("Q2_K", 17.2), ("Q4_K", 4.74), ("Q5_K", 2.38)])
def test_encode_of_drifting_values_keeps_its_quality(name: str, per_mille: float) -> None:
    drift = np.linspace(-3, 3, 256)
    x = (np.random.default_rng(5).standard_normal((64, 256)) / 10 + drift).astype(np.float32)
    error, reach = block_errors(name, x)
    assert np.sqrt((error**2).mean()) <= per_mille / 1000 * 1.05 * reach.mean()


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q4_0", "Q5_0", "Q8_0"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_values_of_an_encoding_encode_to_themselves(name: str, data: st.DataObject) -> None:
    fmt = WEIGHT_FORMATS[name]
    once = fmt.decode(fmt.encode(data.draw(values(32))))
    assert np.array_equal(fmt.decode(fmt.encode(once)), once)


# The most that a second encoding adds, in per cent of the first one's error: searches that weigh large values more
# find another scale.
@pytest.mark.parametrize(
    ("name", "per_cent"),
    [("Q4_1", 5), ("Q5_1", 5), ("Q2_K", 5), ("Q3_K", 25), ("Q4_K", 5), ("Q5_K", 10), ("Q6_K", 5), ("IQ4_NL", 10)],
)
def test_a_second_encoding_adds_little_error(name: str, per_cent: int) -> None:
    fmt = WEIGHT_FORMATS[name]
    x = np.random.default_rng(6).standard_normal((32, 1024)).astype(np.float32)
    once = fmt.decode(fmt.encode(x))
    again = fmt.decode(fmt.encode(once))
    assert np.sqrt(((again - once) ** 2).mean()) <= per_cent / 100 * np.sqrt(((once - x) ** 2).mean())


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_zeros_and_subnormals_decode_to_about_zero(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    x = np.zeros((4, 256), np.float32)
    x[1], x[2, 7], x[3] = 1e-45, -1e-40, np.linspace(-1e-38, 1e-38, 256)
    got = fmt.decode(fmt.encode(x))
    assert np.array_equal(got[0], x[0])
    assert (np.abs(got) <= 1e-4).all()


@pytest.mark.parametrize("name", BLOCK_NAMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_blocks_refuse_nonfinite_values_by_place(name: str, bad: float) -> None:
    x = np.ones((3, 512), np.float32)
    x[1, 300] = bad
    with pytest.raises(ValueError, match=rf"{name} cannot hold {bad} \(row 1, element 300\)"):
        WEIGHT_FORMATS[name].encode(x)


@pytest.mark.parametrize("name", BLOCK_NAMES)
@pytest.mark.parametrize("huge", [1e13, -3e38])
def test_blocks_refuse_values_beyond_their_scales(name: str, huge: float) -> None:
    x = np.ones((2, 512), np.float32)
    x[1, 300] = huge
    block = 300 // WEIGHT_FORMATS[name].block_size
    with pytest.raises(ValueError, match=re.escape(f"{name} cannot hold {np.float32(huge)!s} (row 1, block {block})")):
        WEIGHT_FORMATS[name].encode(x)


def test_f16_refuses_to_overflow_and_bf16_holds_the_value() -> None:
    x = np.ones((2, 8), np.float32)
    x[1, 3] = 1e5
    with pytest.raises(ValueError, match=r"F16 cannot hold 100000.0 \(row 1, element 3\)"):
        WEIGHT_FORMATS["F16"].encode(x)
    assert WEIGHT_FORMATS["BF16"].decode(WEIGHT_FORMATS["BF16"].encode(x))[1, 3] == 99840
    with pytest.raises(ValueError, match=r"BF16 cannot hold 3\.40\d*e\+38 \(row 0, element 1\)"):
        WEIGHT_FORMATS["BF16"].encode(np.array([0, np.finfo(np.float32).max], np.float32))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_floats_keep_nan_and_infinity(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    nans = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    assert np.isnan(fmt.decode(fmt.encode(nans))).all()
    ends = np.array([np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    assert np.array_equal(fmt.decode(fmt.encode(ends)).view(np.uint32), ends.view(np.uint32))


@pytest.mark.parametrize(("name", "kind"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_sixteen_bit_floats_round_as_torch_and_gguf_do(name: str, kind: torch.dtype) -> None:
    bits = np.random.default_rng(7).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    halves = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)  # around every bf16 tie
    x = np.concatenate([bits, halves | np.uint32(0x8000), halves | np.uint32(0x7FFF)]).view(np.float32)
    with np.errstate(all="ignore"):
        x = x[~np.isnan(x) & (np.isinf(x) | np.isfinite(torch.from_numpy(x).to(kind).float().numpy()))]
        want = torch.from_numpy(x).to(kind).view(torch.int16).numpy()
        assert np.array_equal(quantize(x[None], GGMLQuantizationType[name]).view(np.int16)[0], want)
    assert np.array_equal(WEIGHT_FORMATS[name].encode(x).view(np.int16), want)


@pytest.mark.parametrize("name", WEIGHT_NAMES)
def test_encode_takes_any_leading_shape_and_strides(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    x = np.random.default_rng(8).standard_normal((512, 2, 3)).astype(np.float32).transpose(1, 2, 0)
    want = fmt.encode(np.ascontiguousarray(x).reshape(6, 512))
    assert np.array_equal(fmt.encode(x), want.reshape(2, 3, -1))
    assert np.array_equal(fmt.encode(x[1, 2]), want[5])
    assert fmt.encode(x[:0]).shape == (0, 3, fmt.row_bytes(512))
    assert fmt.encode(x[..., :0]).shape == (2, 3, 0)


@pytest.mark.parametrize("name", WEIGHT_NAMES)
def test_encode_leaves_its_input_alone(name: str) -> None:
    x = np.random.default_rng(9).standard_normal((2, 256)).astype(np.float32)
    kept = x.copy()
    data = WEIGHT_FORMATS[name].encode(x)
    assert np.array_equal(x, kept) and not np.shares_memory(data, x)
    assert data.shape == (2, 256 // GEOMETRY[name][0] * GEOMETRY[name][1])
