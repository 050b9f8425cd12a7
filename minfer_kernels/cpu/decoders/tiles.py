"""Blocks of packed weights as tiles of signed bytes, for `simd.tiles`: decoded once, multiplied with many tokens."""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.decoders.kquants import CENTRE_BITS
from minfer_kernels.cpu.decoders.protocol import Decoder, Step
from minfer_kernels.cpu.decoders.registry import decoder_of
from minfer_kernels.cpu.decoders.simple import CENTRES, SIGNED
from minfer_kernels.cpu.simd import inline
from minfer_kernels.cpu.simd.dots import BIAS
from minfer_kernels.cpu.simd.tiles import RUN_BYTES, SUMS_BYTES, store_pairs, store_run, store_scaled_run
from minfer_kernels.cpu.weights.layouts import WeightLayout

SCALED_BYTES = 8 * SUMS_BYTES
"""Bytes of the tiles of a block of 256: 64 elements at a time, low bytes and high bytes."""


def simple_tiles(layout: WeightLayout) -> Step:
    """(block, out): the quants of a block of 32, signed, as one tile of `RUN_BYTES`."""
    load, bias = decoder_of(layout).load, BIAS if layout.format in SIGNED else CENTRES.get(layout.format, 0)
    store = store_run(bias)

    @inline
    def decode(block: Any, out: Any) -> None:
        store(out, load(block, 0))

    return decode


def kquant_tiles(layout: WeightLayout) -> Step:
    """(block, out): (quant - centre) * small scale of a block of 256, in 16 bits, `SCALED_BYTES`.

    Behind them, in formats with minimums, the two tiles of these.
    """
    decoder, centre_bits = decoder_of(layout), CENTRE_BITS.get(layout.format)
    load, runs = decoder.load, decoder.runs
    store = store_scaled_run(0 if centre_bits is None else 1 << centre_bits, 1 if layout.has("mins") else 2)
    decode_minimums = _minimum_tiles(decoder)

    @inline
    def decode(block: Any, out: Any) -> None:
        for r in range(runs):
            quants, scales = load(block, r)
            store(out + 2 * SUMS_BYTES * (r // 2) + RUN_BYTES * (r % 2), quants, scales)
        decode_minimums(block, out + SCALED_BYTES)

    return decode


def _minimum_tiles(decoder: Decoder) -> Step:
    load, runs = decoder.load_offsets, decoder.offset_runs if decoder.layout.has("dmin") else 0

    @inline
    def decode(block: Any, out: Any) -> None:
        for r in range(runs):
            store_pairs(out + 64 * r, load(block, r))

    return decode
