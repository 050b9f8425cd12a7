"""IQ4_NL: 4-bit quants that index a fixed table of uneven levels."""

from __future__ import annotations

import numpy as np

from minfer_ir.formats.base import Bytes, Floats
from minfer_ir.formats.bits import pack_planes, unpack_planes
from minfer_ir.formats.blocks import BlockFormat, Blocks, random_signs
from minfer_ir.formats.search import bounded, fit_table

# kvalues_iq4nl of ggml-common.h.
IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
IQ4_LEVELS.flags.writeable = False

_LEVELS = IQ4_LEVELS.astype(np.float32)
# Index of the level nearest to half / 2, for half = -256..255. A table decides: the midpoints of levels are halves.
_NEAREST = np.searchsorted((_LEVELS[1:] + _LEVELS[:-1]) / 2, np.arange(-256, 256) / 2, side="right").astype(np.uint8)
# What the element of largest magnitude counts as: around the largest level, which is negative.
FIRST, TRIES = 127.0, np.arange(-134, -119, dtype=np.float32)


class _Iq4Nl(BlockFormat):
    """value = d * IQ4_LEVELS[q], in blocks of 32 laid out as Q4_0. Levels are chosen under the scale in float32."""

    unit_std = float(np.std(_LEVELS.astype(np.float64)))

    def __init__(self) -> None:
        super().__init__("IQ4_NL", 32, np.dtype([("d", "<f2"), ("qs", "u1", (16,))]))

    def decode_blocks(self, blocks: Blocks) -> Floats:
        return blocks["d"].astype(np.float32)[:, None] * _LEVELS[unpack_planes(blocks["qs"], 4, 16)]

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        near, factor = bounded(values)
        groups = np.ascontiguousarray(near.T)
        scale = fit_table(groups, FIRST, TRIES, lambda v: _LEVELS[_nearest(v)])[:, None] * factor
        inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
        blocks["qs"] = pack_planes(_nearest(values * inverse), 4, 16)
        blocks["d"] = scale[:, 0]

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        blocks["d"] = unit * random_signs(rng, len(blocks))


def _nearest(values: Floats) -> Bytes:
    """Index of the level nearest to each of `values`."""
    halves = np.floor(values * np.float32(2)).clip(-256, 255)
    return _NEAREST[halves.astype(np.int16) + np.int16(256)]


IQ4_NL = _Iq4Nl()
