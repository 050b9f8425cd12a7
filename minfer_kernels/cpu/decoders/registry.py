"""The matmul decoder of every weight format, by GGML name."""

from __future__ import annotations

from functools import cache

from minfer_kernels.cpu.decoders.floats import float_decoder
from minfer_kernels.cpu.decoders.kquants import kquant_decoder
from minfer_kernels.cpu.decoders.protocol import Decoder
from minfer_kernels.cpu.decoders.simple import simple_decoder
from minfer_kernels.cpu.weights.layouts import layout_of

_MAKERS = {"f32": float_decoder, "Q8A32": simple_decoder, "Q8A256": kquant_decoder}


@cache
def decoder_of(fmt: str) -> Decoder:
    """The decoder for weights of the format with GGML name `fmt`; ValueError when there is none."""
    return _MAKERS[layout_of(fmt).activation](fmt)
