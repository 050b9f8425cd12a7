"""Blocks and values that the format tests share, written from the ggml layouts and not from minfer's."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from numpy.typing import NDArray

# Byte offsets of the float16 scales of a block, and the block's elements and bytes (ggml-common.h).
SCALE_OFFSETS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
}
GEOMETRY = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ4_NL": (32, 18),
}
BLOCK_NAMES = tuple(SCALE_OFFSETS)
WEIGHT_NAMES = tuple(GEOMETRY)

seeds = st.integers(0, 2**32 - 1)
KINDS = (
    "normal",
    "constant",
    "one_hot",
    "positive",
    "negative",
    "heavy",
    "sparse",
    "two_sided",
    "zeros",
    "mixed_scales",
    "drift",
)


def random_rows(name: str, seed: int, rows: int, blocks: int) -> NDArray[np.uint8]:
    """Random bytes with finite scales of any size and sign, subnormal and zero among them."""
    rng = np.random.default_rng(seed)
    block_bytes = GEOMETRY[name][1]
    data = rng.integers(0, 256, (rows, blocks, block_bytes), dtype=np.uint8)
    for offset in SCALE_OFFSETS[name]:
        bits = rng.integers(0, 0x7C00, (rows, blocks), dtype=np.uint16)
        bits[rng.random((rows, blocks)) < 0.1] = rng.choice(np.array([0, 1, 0x3FF, 0x400, 0x7BFF], np.uint16))
        bits |= rng.integers(0, 2, (rows, blocks), dtype=np.uint16) << np.uint16(15)
        data[..., offset : offset + 2] = bits[..., None].view(np.uint8)
    return data.reshape(rows, blocks * block_bytes)


@st.composite
def values(draw: st.DrawFn, block_size: int, decades: tuple[float, float] = (-12, 3)) -> NDArray[np.float32]:
    """Rows of whole blocks of many shapes of distribution and sizes."""
    rng = np.random.default_rng(draw(seeds))
    rows, blocks = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(KINDS))
    x = rng.standard_normal((rows, blocks * block_size))
    if kind == "constant":
        x = np.full_like(x, rng.standard_normal())
    elif kind == "one_hot":
        x = x * (rng.random(x.shape) < 1 / block_size)
    elif kind in ("positive", "negative"):
        x = np.abs(x) * (1 if kind == "positive" else -1) + rng.uniform(-0.1, 3)
    elif kind == "heavy":
        x = x**5
    elif kind == "sparse":
        x = x * (rng.random(x.shape) < 0.2)
    elif kind == "two_sided":
        x = np.sign(x)
    elif kind == "zeros":
        x = x * 0
    elif kind == "mixed_scales":
        x = x * 10.0 ** rng.uniform(-6, 0, x.shape)
    elif kind == "drift":  # sub-blocks of one sign beside sub-blocks of the other
        x = x / 10 + np.linspace(-3, 3, x.shape[1])
    x = x / max(1.0, np.abs(x).max())
    return (x * 10.0 ** draw(st.floats(*decades))).astype(np.float32)


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Equal in every bit, any NaN counting as equal to any NaN."""
    assert a.dtype == b.dtype == np.float32 and a.shape == b.shape
    nan = np.isnan(a)
    return bool(np.array_equal(nan, np.isnan(b)) and np.array_equal(a[~nan].view(np.uint32), b[~nan].view(np.uint32)))
