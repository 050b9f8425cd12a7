"""K-quants: 256-element super-blocks of 8 or 16 sub-blocks whose integer scales share one or two float16 scales.

Layouts follow ggml (ggml-common.h: block_q2_K to block_q6_K). Encoding fits every sub-block by least squares
(`minfer_ir.formats.fit`), rounds the fitted scales to integers, and rounds the values again under the rounded scales.
It works on each super-block divided by its largest magnitude, so that no sum of squares leaves float32.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from minfer_ir.formats.base import Bytes, Floats
from minfer_ir.formats.bits import pack_planes, unpack_planes
from minfer_ir.formats.blocks import BlockFormat, Blocks, random_signs, uniform_square
from minfer_ir.formats.fit import divide, fit_affine, fit_symmetric, shared_scale

SUPER_BLOCK = 256
Steps = tuple[float, ...]


class _Affine(BlockFormat):
    """value = d * scale[j] * q - dmin * offset[j] for sub-block j, all integers unsigned."""

    def __init__(
        self, name: str, layout: np.dtype[np.void], *, bits: int, scale_bits: int, sub_block: int, steps: Steps
    ) -> None:
        super().__init__(name, SUPER_BLOCK, layout)
        self.largest, self.largest_scale = (1 << bits) - 1, (1 << scale_bits) - 1
        self.sub_block, self.steps = sub_block, steps
        quant_variance = ((1 << bits) ** 2 - 1) / 12
        self.unit_std = (uniform_square(0, self.largest_scale) * quant_variance) ** 0.5

    @abstractmethod
    def quants(self, blocks: Blocks) -> Bytes:
        """Quants `[n, 256]`."""

    @abstractmethod
    def store_quants(self, quants: Bytes, blocks: Blocks) -> None:
        """The inverse of `quants`."""

    @abstractmethod
    def sub_scales(self, blocks: Blocks) -> tuple[Bytes, Bytes]:
        """The integer scales and offsets of the sub-blocks, each `[n, 256 / sub_block]`."""

    @abstractmethod
    def store_sub_scales(self, scales: Bytes, offsets: Bytes, blocks: Blocks) -> None:
        """The inverse of `sub_scales`."""

    def decode_blocks(self, blocks: Blocks) -> Floats:
        scales, offsets = self.sub_scales(blocks)
        scale: Floats = blocks["d"].astype(np.float32)[:, None] * scales
        offset: Floats = blocks["dmin"].astype(np.float32)[:, None] * offsets
        quants = self.quants(blocks).reshape(len(blocks), -1, self.sub_block)
        values = scale[..., None] * quants - offset[..., None]
        return values.reshape(len(blocks), SUPER_BLOCK)

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        unit, peak = _normalized(values)
        scale, offset = fit_affine(unit.reshape(-1, self.sub_block), self.largest, self.steps)
        scale, offset = scale.reshape(len(blocks), -1) * peak, offset.reshape(len(blocks), -1) * peak
        d, dmin = shared_scale(scale, self.largest_scale), shared_scale(offset, self.largest_scale)
        scales = np.rint(divide(scale, d)).clip(0, self.largest_scale)
        offsets = np.rint(divide(offset, dmin)).clip(0, self.largest_scale)
        shifted = values.reshape(len(blocks), -1, self.sub_block) + (dmin * offsets)[..., None]
        quants = np.rint(divide(shifted, (d * scales)[..., None])).clip(0, self.largest)
        self.store_quants(quants.astype(np.uint8).reshape(len(blocks), -1), blocks)
        self.store_sub_scales(scales.astype(np.uint8), offsets.astype(np.uint8), blocks)
        blocks["d"], blocks["dmin"] = d[:, 0], dmin[:, 0]

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        # Offsets stay near their scales, so that dmin = d * (mean quant) centres every sub-block about 0.
        scales, _ = self.sub_scales(blocks)
        reach = (self.largest_scale + 1) // 16
        jitter = rng.integers(-reach, reach + 1, scales.shape, dtype=np.int8)
        offsets = (scales.astype(np.int8) + jitter).clip(0, self.largest_scale).astype(np.uint8)
        self.store_sub_scales(scales, offsets, blocks)
        blocks["d"], blocks["dmin"] = unit, unit * np.float32(self.largest / 2)


class _Q2K(_Affine):
    def __init__(self) -> None:
        layout = np.dtype([("scales", "u1", (16,)), ("qs", "u1", (64,)), ("d", "<f2"), ("dmin", "<f2")])
        super().__init__("Q2_K", layout, bits=2, scale_bits=4, sub_block=16, steps=_steps(-0.5, 0.1, 15))

    def quants(self, blocks: Blocks) -> Bytes:
        return unpack_planes(blocks["qs"], 2, 32)

    def store_quants(self, quants: Bytes, blocks: Blocks) -> None:
        blocks["qs"] = pack_planes(quants, 2, 32)

    def sub_scales(self, blocks: Blocks) -> tuple[Bytes, Bytes]:
        return blocks["scales"] & np.uint8(15), blocks["scales"] >> np.uint8(4)

    def store_sub_scales(self, scales: Bytes, offsets: Bytes, blocks: Blocks) -> None:
        blocks["scales"] = scales | (offsets << np.uint8(4))


class _Q4K(_Affine):
    """Q4_K, and Q5_K with a fifth bit per quant in `qh`.

    The 12 bytes of 6-bit scales and offsets: bytes 0-3 hold scales 0-3 and, above them, the high bits of scales 4-7;
    bytes 4-7 the same for offsets; bytes 8-11 the low nibbles of scales 4-7 and, above them, of offsets 4-7.
    """

    def __init__(self, name: str, bits: int) -> None:
        qh = [("qh", "u1", (32,))] * (bits == 5)
        layout = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), *qh, ("qs", "u1", (128,))])
        super().__init__(name, layout, bits=bits, scale_bits=6, sub_block=32, steps=_steps(-1.0, 0.1, 20))
        self.bits = bits

    def quants(self, blocks: Blocks) -> Bytes:
        low = unpack_planes(blocks["qs"], 4, 32)
        return low if self.bits == 4 else low | (unpack_planes(blocks["qh"], 1, 32) << np.uint8(4))

    def store_quants(self, quants: Bytes, blocks: Blocks) -> None:
        blocks["qs"] = pack_planes(quants & np.uint8(15), 4, 32)
        if self.bits == 5:
            blocks["qh"] = pack_planes(quants >> np.uint8(4), 1, 32)

    def sub_scales(self, blocks: Blocks) -> tuple[Bytes, Bytes]:
        packed = blocks["scales"]
        first, second, mixed = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
        low6, high2, nibble = np.uint8(63), np.uint8(48), np.uint8(15)
        scales = np.concatenate([first & low6, (mixed & nibble) | ((first >> np.uint8(2)) & high2)], axis=1)
        offsets = np.concatenate([second & low6, (mixed >> np.uint8(4)) | ((second >> np.uint8(2)) & high2)], axis=1)
        return scales, offsets

    def store_sub_scales(self, scales: Bytes, offsets: Bytes, blocks: Blocks) -> None:
        high, up4, nibble = np.uint8(48), np.uint8(4), np.uint8(15)
        first = scales[:, :4] | ((scales[:, 4:] & high) << np.uint8(2))
        second = offsets[:, :4] | ((offsets[:, 4:] & high) << np.uint8(2))
        mixed = (scales[:, 4:] & nibble) | ((offsets[:, 4:] & nibble) << up4)
        blocks["scales"] = np.concatenate([first, second, mixed], axis=1)


class _Centred(BlockFormat):
    """value = d * scale[j] * q for sub-block j of 16, scale and q signed."""

    def __init__(self, name: str, layout: np.dtype[np.void], bits: int, scale_bits: int) -> None:
        super().__init__(name, SUPER_BLOCK, layout)
        self.lowest, self.lowest_scale = -(1 << (bits - 1)), -(1 << (scale_bits - 1))
        self.unit_std = (_signed_square(self.lowest) * _signed_square(self.lowest_scale)) ** 0.5
        self.extremes = tuple(self.lowest + step for step in _steps(-0.9, 0.1, 18))

    @abstractmethod
    def quants(self, blocks: Blocks) -> Floats:
        """Signed quants `[n, 256]` as float32."""

    @abstractmethod
    def store_quants(self, quants: Floats, blocks: Blocks) -> None:
        """The inverse of `quants`."""

    @abstractmethod
    def sub_scales(self, blocks: Blocks) -> Floats:
        """The signed integer scales of the sub-blocks, `[n, 16]` as float32."""

    @abstractmethod
    def store_sub_scales(self, scales: Floats, blocks: Blocks) -> None:
        """The inverse of `sub_scales`."""

    def decode_blocks(self, blocks: Blocks) -> Floats:
        scales = blocks["d"].astype(np.float32)[:, None] * self.sub_scales(blocks)
        values = scales[..., None] * self.quants(blocks).reshape(len(blocks), 16, 16)
        return values.reshape(len(blocks), SUPER_BLOCK)

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        unit, peak = _normalized(values)
        scale = fit_symmetric(unit.reshape(-1, 16), self.extremes, self._to_level).reshape(len(blocks), 16) * peak
        d = shared_scale(scale, self.lowest_scale)
        scales = np.rint(divide(scale, d)).clip(self.lowest_scale, -self.lowest_scale - 1)
        levels = self._to_level(divide(values.reshape(len(blocks), 16, 16), (d * scales)[..., None]))
        self.store_quants(levels.reshape(len(blocks), SUPER_BLOCK), blocks)
        self.store_sub_scales(scales, blocks)
        blocks["d"] = d[:, 0]

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        blocks["d"] = unit * random_signs(rng, len(blocks))

    def _to_level(self, values: Floats) -> Floats:
        return np.rint(values).clip(self.lowest, -self.lowest - 1)


class _Q3K(_Centred):
    """Quants of 3 bits: two in `qs`, and a high bit in `hmask` whose absence subtracts 4.

    Scales of 6 bits, biased by 32: bytes 0-7 of `scales` hold the low nibbles of scales 0-7 and, above them, of 8-15;
    bytes 8-11 the high two bits of scales 0-3, 4-7, 8-11 and 12-15.
    """

    def __init__(self) -> None:
        layout = np.dtype([("hmask", "u1", (32,)), ("qs", "u1", (64,)), ("scales", "u1", (12,)), ("d", "<f2")])
        super().__init__("Q3_K", layout, bits=3, scale_bits=6)

    def quants(self, blocks: Blocks) -> Floats:
        biased = unpack_planes(blocks["qs"], 2, 32) | (unpack_planes(blocks["hmask"], 1, 32) << np.uint8(2))
        return biased.astype(np.float32) - np.float32(4)

    def store_quants(self, quants: Floats, blocks: Blocks) -> None:
        biased = (quants + np.float32(4)).astype(np.uint8)
        blocks["qs"] = pack_planes(biased & np.uint8(3), 2, 32)
        blocks["hmask"] = pack_planes(biased >> np.uint8(2), 1, 32)

    def sub_scales(self, blocks: Blocks) -> Floats:
        low, high = unpack_planes(blocks["scales"][:, :8], 4, 8), unpack_planes(blocks["scales"][:, 8:], 2, 4)
        return (low | (high << np.uint8(4))).astype(np.float32) - np.float32(32)

    def store_sub_scales(self, scales: Floats, blocks: Blocks) -> None:
        biased = (scales + np.float32(32)).astype(np.uint8)
        low, high = pack_planes(biased & np.uint8(15), 4, 8), pack_planes(biased >> np.uint8(4), 2, 4)
        blocks["scales"] = np.concatenate([low, high], axis=1)


class _Q6K(_Centred):
    """Quants of 6 bits biased by 32: nibbles in `ql`, two high bits in `qh`. Scales are signed bytes."""

    def __init__(self) -> None:
        layout = np.dtype([("ql", "u1", (128,)), ("qh", "u1", (64,)), ("scales", "i1", (16,)), ("d", "<f2")])
        super().__init__("Q6_K", layout, bits=6, scale_bits=8)

    def quants(self, blocks: Blocks) -> Floats:
        biased = unpack_planes(blocks["ql"], 4, 64) | (unpack_planes(blocks["qh"], 2, 32) << np.uint8(4))
        return biased.astype(np.float32) - np.float32(32)

    def store_quants(self, quants: Floats, blocks: Blocks) -> None:
        biased = (quants + np.float32(32)).astype(np.uint8)
        blocks["ql"] = pack_planes(biased & np.uint8(15), 4, 64)
        blocks["qh"] = pack_planes(biased >> np.uint8(4), 2, 32)

    def sub_scales(self, blocks: Blocks) -> Floats:
        return blocks["scales"].astype(np.float32)

    def store_sub_scales(self, scales: Floats, blocks: Blocks) -> None:
        blocks["scales"] = scales


def _normalized(values: Floats) -> tuple[Floats, Floats]:
    """Blocks `[n, 256]` divided by their largest magnitude, and that magnitude `[n, 1]`."""
    peak = np.abs(values).max(axis=1, keepdims=True)
    return divide(values, peak), peak


def _steps(start: float, step: float, count: int) -> Steps:
    return tuple(start + step * i for i in range(count + 1))


def _signed_square(lowest: int) -> float:
    return uniform_square(lowest, -lowest - 1)


Q2_K = _Q2K()
Q3_K = _Q3K()
Q4_K = _Q4K("Q4_K", 4)
Q5_K = _Q4K("Q5_K", 5)
Q6_K = _Q6K()
