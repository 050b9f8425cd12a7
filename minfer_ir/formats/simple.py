"""The 32-element types of GGUF with one or two float16 scales a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

Layouts and rounding follow ggml's reference quantizers (ggml-quants.c), as gguf-py restates them.
"""

from __future__ import annotations

import numpy as np

from minfer_ir.formats.base import Bytes, Floats
from minfer_ir.formats.bits import pack_planes, unpack_planes
from minfer_ir.formats.blocks import BlockFormat, Blocks, random_signs, uniform_square


class _SmallInt(BlockFormat):
    """32 quants of 4 or 5 bits, low nibbles in `qs` (elements 0-15, then 16-31), the fifth bits in `qh`."""

    def __init__(self, name: str, bits: int, minimum: bool) -> None:
        fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [("d", "<f2")]
        fields += [("m", "<f2")] * minimum
        fields += [("qh", "u1", (4,))] * (bits == 5)
        super().__init__(name, 32, np.dtype([*fields, ("qs", "u1", (16,))]))
        self.bits = bits

    def quants(self, blocks: Blocks) -> Bytes:
        """Unsigned quants `[n, 32]` below `2 ** bits`."""
        low = unpack_planes(blocks["qs"], 4, 16)
        if self.bits == 4:
            return low
        return low | (unpack_planes(blocks["qh"], 1, 1) << np.uint8(4))

    def store_quants(self, quants: Bytes, blocks: Blocks) -> None:
        """The inverse of `quants`."""
        blocks["qs"] = pack_planes(quants & np.uint8(15), 4, 16)
        if self.bits == 5:
            blocks["qh"] = pack_planes(quants >> np.uint8(4), 1, 1)


class _Centred(_SmallInt):
    """value = d * (q - 2 ** (bits - 1))."""

    def __init__(self, name: str, bits: int) -> None:
        super().__init__(name, bits, minimum=False)
        self.centre = 1 << (bits - 1)
        self.unit_std = uniform_square(-self.centre, self.centre - 1) ** 0.5

    def decode_blocks(self, blocks: Blocks) -> Floats:
        d = blocks["d"].astype(np.float32)[:, None]
        return d * (self.quants(blocks).view(np.int8) - np.int8(self.centre)).astype(np.float32)

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        extreme = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
        d = extreme / np.float32(-self.centre)
        shifted = values * _inverse(d) + np.float32(self.centre + 0.5)
        self.store_quants(_floor_to(shifted, 2 * self.centre - 1), blocks)
        blocks["d"] = d[:, 0]

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        blocks["d"] = unit * random_signs(rng, len(blocks))


class _Offset(_SmallInt):
    """value = d * q + m, where m is the block's minimum."""

    def __init__(self, name: str, bits: int) -> None:
        super().__init__(name, bits, minimum=True)
        self.largest = (1 << bits) - 1
        self.unit_std = (((1 << bits) ** 2 - 1) / 12) ** 0.5

    def decode_blocks(self, blocks: Blocks) -> Floats:
        d = blocks["d"].astype(np.float32)[:, None]
        m = blocks["m"].astype(np.float32)[:, None]
        return d * self.quants(blocks).astype(np.float32) + m

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        minimum = values.min(axis=1, keepdims=True)
        d = (values.max(axis=1, keepdims=True) - minimum) / np.float32(self.largest)
        shifted = (values - minimum) * _inverse(d) + np.float32(0.5)
        self.store_quants(_floor_to(shifted, self.largest), blocks)
        blocks["d"], blocks["m"] = d[:, 0], minimum[:, 0]

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        blocks["d"] = unit
        blocks["m"] = (
            -unit * np.float32(self.largest) * (np.float32(0.45) + rng.random(len(blocks), np.float32) / np.float32(10))
        )


class _Int8(BlockFormat):
    """value = d * q with 32 signed bytes."""

    unit_std = uniform_square(-128, 127) ** 0.5

    def __init__(self, name: str) -> None:
        super().__init__(name, 32, np.dtype([("d", "<f2"), ("qs", "i1", (32,))]))

    def decode_blocks(self, blocks: Blocks) -> Floats:
        return blocks["qs"].astype(np.float32) * blocks["d"].astype(np.float32)[:, None]

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        d = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
        scaled = values * _inverse(d)
        size = np.abs(scaled)
        whole = np.floor(size)
        # Halves round away from zero, as C's roundf does.
        rounded = np.sign(scaled) * (whole + np.floor(np.float32(2) * (size - whole)))
        blocks["qs"], blocks["d"] = rounded, d[:, 0]

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        blocks["d"] = unit


def _inverse(d: Floats) -> Floats:
    """1 / d, and 0 where d is 0 or so small that the inverse overflows (its float16 is 0 as well)."""
    inverse = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _floor_to(values: Floats, largest: int) -> Bytes:
    return np.trunc(values).clip(0, largest).astype(np.uint8)


Q4_0 = _Centred("Q4_0", 4)
Q4_1 = _Offset("Q4_1", 4)
Q5_0 = _Centred("Q5_0", 5)
Q5_1 = _Offset("Q5_1", 5)
Q8_0 = _Int8("Q8_0")
