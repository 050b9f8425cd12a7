"""K-quants: 256-element super-blocks of 8 or 16 sub-blocks whose integer scales share one or two float16 scales.

Layouts follow ggml (ggml-common.h: block_q2_K to block_q6_K), and so does encoding (ggml-quants.c:
quantize_row_q2_K_ref to quantize_row_q6_K_ref): every sub-block is fitted (`minfer_ir.formats.search`), the fitted
scales are rounded to integers under a float16 scale, and the values are rounded again under the rounded scales. A
sub-block whose scale rounds to 0 keeps the quants of its fit.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from minfer_ir.formats.base import Bytes, Floats
from minfer_ir.formats.bits import pack_planes, unpack_planes
from minfer_ir.formats.blocks import BlockFormat, Blocks, random_signs, uniform_square
from minfer_ir.formats.search import SMALLEST_PEAK, bounded, column_sums, fit_affine, fit_by_descent, fit_signed

SUPER_BLOCK = 256
_ZERO = np.float32(0)


class Affine(BlockFormat):
    """value = d * scale[j] * q - dmin * offset[j] for sub-block j, all integers unsigned."""

    def __init__(
        self, name: str, layout: np.dtype[np.void], *, bits: int, scale_bits: int, sub_block: int, tries: Floats
    ) -> None:
        super().__init__(name, SUPER_BLOCK, layout)
        self.largest, self.largest_scale = (1 << bits) - 1, (1 << scale_bits) - 1
        self.sub_block, self.tries = sub_block, tries
        self.absolute_errors = bits == 2
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
        """See `BlockFormat.decode_blocks`."""
        scales, offsets = self.sub_scales(blocks)
        scale: Floats = blocks["d"].astype(np.float32)[:, None] * scales
        offset: Floats = blocks["dmin"].astype(np.float32)[:, None] * offsets
        quants = self.quants(blocks).reshape(len(blocks), -1, self.sub_block)
        values = scale[..., None] * quants - offset[..., None]
        return values.reshape(len(blocks), SUPER_BLOCK)

    @abstractmethod
    def weights(self, groups: Floats) -> Floats:
        """How much the error of each element of sub-blocks `[sub_block, n]` weighs."""

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        """See `BlockFormat.encode_blocks`."""
        near, factor = bounded(values)
        groups = np.ascontiguousarray(near.reshape(-1, self.sub_block).T)
        scale, offset, fitted = fit_affine(
            groups, self.weights(groups), self.largest, self.tries, absolute=self.absolute_errors
        )
        d, scales = self._shared(scale.reshape(len(blocks), -1) * factor)
        dmin, offsets = self._shared(offset.reshape(len(blocks), -1) * factor)
        step = (d * scales)[..., None]
        shifted = values.reshape(len(blocks), -1, self.sub_block) + (dmin * offsets)[..., None]
        quants = np.where(step == 0, _by_block(fitted, len(blocks)), np.rint(shifted / step).clip(0, self.largest))
        self.store_quants(quants.astype(np.uint8).reshape(len(blocks), -1), blocks)
        self.store_sub_scales(scales.astype(np.uint8), offsets.astype(np.uint8), blocks)
        blocks["d"], blocks["dmin"] = d[:, 0], dmin[:, 0]

    def _shared(self, scales: Floats) -> tuple[Floats, Floats]:
        """The float16 scale `[n, 1]` and the integers `[n, k]` that stand for positive `scales [n, k]`."""
        largest = np.float32(self.largest_scale)
        peak = scales.max(axis=1, keepdims=True)
        integers = np.where(peak > 0, np.rint(scales * (largest / peak)).clip(0, largest), _ZERO)
        return (peak / largest).astype(np.float16).astype(np.float32), integers

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        """See `BlockFormat.fill_scales`."""
        # Offsets stay near their scales, so that dmin = d * (mean quant) centres every sub-block about 0.
        scales, _ = self.sub_scales(blocks)
        reach = (self.largest_scale + 1) // 16
        jitter = rng.integers(-reach, reach + 1, scales.shape, dtype=np.int8)
        offsets = (scales.astype(np.int8) + jitter).clip(0, self.largest_scale).astype(np.uint8)
        self.store_sub_scales(scales, offsets, blocks)
        blocks["d"], blocks["dmin"] = unit, unit * np.float32(self.largest / 2)


class _Q2K(Affine):
    def __init__(self) -> None:
        layout = np.dtype([("scales", "u1", (16,)), ("qs", "u1", (64,)), ("d", "<f2"), ("dmin", "<f2")])
        super().__init__("Q2_K", layout, bits=2, scale_bits=4, sub_block=16, tries=_tries(3, -0.5, 16))

    def weights(self, groups: Floats) -> Floats:
        return np.abs(groups)

    def quants(self, blocks: Blocks) -> Bytes:
        return unpack_planes(blocks["qs"], 2, 32)

    def store_quants(self, quants: Bytes, blocks: Blocks) -> None:
        blocks["qs"] = pack_planes(quants, 2, 32)

    def sub_scales(self, blocks: Blocks) -> tuple[Bytes, Bytes]:
        return blocks["scales"] & np.uint8(15), blocks["scales"] >> np.uint8(4)

    def store_sub_scales(self, scales: Bytes, offsets: Bytes, blocks: Blocks) -> None:
        blocks["scales"] = scales | (offsets << np.uint8(4))


class _Q4K(Affine):
    """Q4_K, and Q5_K with a fifth bit per quant in `qh`.

    The 12 bytes of 6-bit scales and offsets: bytes 0-3 hold scales 0-3 and, above them, the high bits of scales 4-7;
    bytes 4-7 the same for offsets; bytes 8-11 the low nibbles of scales 4-7 and, above them, of offsets 4-7.
    """

    def __init__(self, name: str, bits: int) -> None:
        qh = [("qh", "u1", (32,))] * (bits == 5)
        layout = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (12,)), *qh, ("qs", "u1", (128,))])
        tries = _tries(15, -1.0, 21) if bits == 4 else _tries(31, -0.5, 16)
        super().__init__(name, layout, bits=bits, scale_bits=6, sub_block=32, tries=tries)
        self.bits = bits

    def weights(self, groups: Floats) -> Floats:
        return np.sqrt(column_sums(groups * groups) / np.float32(self.sub_block)) + np.abs(groups)

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


class Centred(BlockFormat):
    """value = d * scale[j] * q for sub-block j of 16, scale and q signed."""

    zero_scale: int  # what stands for the scales of a block of zeros

    def __init__(self, name: str, layout: np.dtype[np.void], bits: int, scale_bits: int) -> None:
        super().__init__(name, SUPER_BLOCK, layout)
        self.lowest, self.lowest_scale = -(1 << (bits - 1)), -(1 << (scale_bits - 1))
        self.unit_std = (_signed_square(self.lowest) * _signed_square(self.lowest_scale)) ** 0.5

    @abstractmethod
    def fit(self, groups: Floats) -> tuple[Floats, Floats]:
        """Scales `[n]` and levels `[16, n]` of sub-blocks `[16, n]`."""

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
        """See `BlockFormat.decode_blocks`."""
        scales = blocks["d"].astype(np.float32)[:, None] * self.sub_scales(blocks)
        values = scales[..., None] * self.quants(blocks).reshape(len(blocks), 16, 16)
        return values.reshape(len(blocks), SUPER_BLOCK)

    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        """See `BlockFormat.encode_blocks`."""
        near, factor = bounded(values)
        scale, fitted = self.fit(np.ascontiguousarray(near.reshape(-1, 16).T))
        scale = scale.reshape(len(blocks), 16) * factor
        peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=1, keepdims=True), axis=1)
        zero = np.abs(peak) < SMALLEST_PEAK
        inverse = np.where(zero, _ZERO, np.float32(self.lowest_scale) / peak)
        d = np.where(zero, _ZERO, np.float32(1) / inverse).astype(np.float16).astype(np.float32)
        scales = np.rint(scale * inverse).clip(self.lowest_scale, -self.lowest_scale - 1)
        step = (d * scales)[..., None]
        levels = np.rint(values.reshape(len(blocks), 16, 16) / step).clip(self.lowest, -self.lowest - 1)
        levels = np.where(step == 0, _by_block(fitted, len(blocks)), levels).reshape(len(blocks), SUPER_BLOCK)
        self.store_quants(np.where(zero, np.float32(self.lowest), levels), blocks)
        self.store_sub_scales(np.where(zero, np.float32(self.zero_scale), scales), blocks)
        blocks["d"] = d[:, 0]

    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        """See `BlockFormat.fill_scales`."""
        blocks["d"] = unit * random_signs(rng, len(blocks))


class _Q3K(Centred):
    """Quants of 3 bits: two in `qs`, and a high bit in `hmask` whose absence subtracts 4.

    Scales of 6 bits, biased by 32: bytes 0-7 of `scales` hold the low nibbles of scales 0-7 and, above them, of 8-15;
    bytes 8-11 the high two bits of scales 0-3, 4-7, 8-11 and 12-15.
    """

    def __init__(self) -> None:
        layout = np.dtype([("hmask", "u1", (32,)), ("qs", "u1", (64,)), ("scales", "u1", (12,)), ("d", "<f2")])
        super().__init__("Q3_K", layout, bits=3, scale_bits=6)
        self.zero_scale = self.lowest_scale  # bytes of 0

    def fit(self, groups: Floats) -> tuple[Floats, Floats]:
        return fit_by_descent(groups, self.lowest)

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


class _Q6K(Centred):
    """Quants of 6 bits biased by 32: nibbles in `ql`, two high bits in `qh`. Scales are signed bytes."""

    def __init__(self) -> None:
        layout = np.dtype([("ql", "u1", (128,)), ("qh", "u1", (64,)), ("scales", "i1", (16,)), ("d", "<f2")])
        super().__init__("Q6_K", layout, bits=6, scale_bits=8)
        self.zero_scale = 0
        self.tries = -_tries(32, -0.9, 19)[np.arange(19) != 9]

    def fit(self, groups: Floats) -> tuple[Floats, Floats]:
        return fit_signed(groups, self.lowest, self.tries)

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


def _tries(quants: int, first: float, count: int) -> Floats:
    """`count` numbers around `quants`, a tenth apart, in the float32 steps that ggml takes."""
    return np.float32(first) + np.float32(0.1) * np.arange(count, dtype=np.float32) + np.float32(quants)


def _by_block(fitted: Floats, n_blocks: int) -> Floats:
    """Columns of sub-blocks `[size, n]` as `[n_blocks, n / n_blocks, size]`."""
    return fitted.T.reshape(n_blocks, -1, len(fitted))


def _signed_square(lowest: int) -> float:
    return uniform_square(lowest, -lowest - 1)


Q2_K = _Q2K()
Q3_K = _Q3K()
Q4_K = _Q4K("Q4_K", 4)
Q5_K = _Q4K("Q5_K", 5)
Q6_K = _Q6K()
