"""The matmul decoder of every quantized weight format, by its layout."""

from __future__ import annotations

from functools import cache

from minfer_kernels.cpu.decoders.kquants import kquant_decoder
from minfer_kernels.cpu.decoders.protocol import Decoder
from minfer_kernels.cpu.decoders.simple import simple_decoder
from minfer_kernels.cpu.weights.layouts import WeightLayout

_MAKERS = {"Q8A32": simple_decoder, "Q8A256": kquant_decoder}


@cache
def decoder_of(layout: WeightLayout) -> Decoder:
    """The decoder for weights packed so, by the activations that they take."""
    return _MAKERS[layout.activation](layout)
