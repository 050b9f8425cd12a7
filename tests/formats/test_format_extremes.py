"""Blocks of the values that quantizers stumble over: zeros of both signs, ties, denormals, the largest finite ones."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from minfer_ir.formats import WEIGHT_FORMATS, EncodeError

GGUF_PY_ENCODES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
SPECIAL = (0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126, -1e-40, 0.5, -0.5, 1.5, 2.5, -127.0, 127.0, 65504.0, -65504.0)

SMALLEST_INVERTED = 2.0**-120
"""The inverse of a scale of smaller values may overflow."""

special_blocks = st.lists(
    st.one_of(
        st.sampled_from(SPECIAL),
        st.integers(-300, 300).map(lambda n: n / 2),
        st.floats(-65504, 65504, width=32),
        st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: x / 2.0**113),
    ),
    min_size=32,
    max_size=32,
)


def check_against_gguf_py(name: str, x: NDArray[np.float32]) -> None:
    got = WEIGHT_FORMATS[name].encode(x)
    peaks = np.abs(x.reshape(-1, 32)).max(axis=1)
    if name.startswith("Q") and ((peaks > 0) & (peaks < SMALLEST_INVERTED)).any():
        # gguf-py turns an infinity into an integer, which machines do differently; under a scale of 0 it's nothing
        assert np.abs(WEIGHT_FORMATS[name].decode(got)[peaks < SMALLEST_INVERTED]).max() <= 2.0**-24
        return
    with np.errstate(all="ignore"):
        expected = quantize(x, GGMLQuantizationType[name])
    assert np.array_equal(got, expected.view(np.uint8))


@pytest.mark.parametrize("name", GGUF_PY_ENCODES)
@given(values=special_blocks)
@settings(max_examples=60, deadline=None)
def test_special_values_encode_as_in_gguf_py(name: str, values: list[float]) -> None:
    check_against_gguf_py(name, np.array([values, values[::-1]], np.float32))


@pytest.mark.parametrize("name", GGUF_PY_ENCODES)
@pytest.mark.parametrize("value", SPECIAL)
def test_a_block_of_one_special_value_encodes_as_in_gguf_py(name: str, value: float) -> None:
    check_against_gguf_py(name, np.full((1, 32), value, np.float32))


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"])
@given(values=special_blocks)
@settings(max_examples=40, deadline=None)
def test_searched_types_stay_near_special_values(name: str, values: list[float]) -> None:
    fmt = WEIGHT_FORMATS[name]
    x = np.resize(np.array(values, np.float32), (1, 256))
    decoded = fmt.decode(fmt.encode(x)).astype(np.float64)
    assert np.isfinite(decoded).all()
    # a block's coarsest step, of its range with 0 in it; float16 scales add their own smallest one
    reach = max(float(x.max()), 0.0) - min(float(x.min()), 0.0)
    assert np.abs(decoded - x).max() <= 0.75 * reach + 2.0**-24 * 32 * 128


@pytest.mark.parametrize("name", WEIGHT_FORMATS)
def test_the_largest_float32_is_refused_by_its_row_or_kept(name: str) -> None:
    fmt = WEIGHT_FORMATS[name]
    x = np.zeros((3, 256), np.float32)
    x[2, 40] = np.finfo(np.float32).max
    if name == "F32":
        assert np.array_equal(fmt.decode(fmt.encode(x)), x)
        return
    with pytest.raises(EncodeError) as caught:
        fmt.encode(x)
    assert caught.value.row == 2
    assert str(caught.value.below(100)) == str(caught.value).replace("(row 2,", "(row 102,")
