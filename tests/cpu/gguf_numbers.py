"""Weights taken apart by gguf-py: the integers of a block and its scales, read off its own dequantizer."""

from __future__ import annotations

import gguf
import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats import WEIGHT_FORMATS, BlockFormat

CENTRES = {"Q4_0": 8, "Q5_0": 16}


def dequantize(fmt: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    return gguf.quants.dequantize(np.ascontiguousarray(raw), gguf.GGMLQuantizationType[fmt]).astype(np.float32)


def blocks_of(fmt: str, raw: NDArray[np.uint8]) -> NDArray[np.void]:
    """A view `[rows, n_blocks]` of the blocks of contiguous rows, by field."""
    block_format = WEIGHT_FORMATS[fmt]
    assert isinstance(block_format, BlockFormat)
    return raw.reshape(len(raw), -1, block_format.block_bytes).view(block_format.layout)[..., 0]


def with_scales(fmt: str, raw: NDArray[np.uint8], d: float, minimum: float) -> NDArray[np.uint8]:
    """A copy of the rows with every float16 scale, and every minimum, replaced."""
    copy = np.ascontiguousarray(raw).copy()
    blocks = blocks_of(fmt, copy)
    for field in blocks.dtype.names or ():
        if blocks.dtype[field] == np.float16:
            blocks[field] = d if field == "d" else minimum
    return copy


def integers(fmt: str, raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """`[rows, k]`: quants times small scales, as signed integers (dequantized with d = 1 and no minimum)."""
    return dequantize(fmt, with_scales(fmt, raw, 1, 0)).astype(np.int64)


def minimums(fmt: str, raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """`[rows, k]`: the small minimum of every element (dequantized with d = 0 and dmin = 1)."""
    return -dequantize(fmt, with_scales(fmt, raw, 0, 1)).astype(np.int64)


def scale(fmt: str, raw: NDArray[np.uint8], field: str) -> NDArray[np.float32]:
    """`[rows, n_blocks]`: a float16 field, widened."""
    return blocks_of(fmt, np.ascontiguousarray(raw))[field].astype(np.float32)
