"""Quantizing GGUF files: which tensor gets which type, and writing them."""

from minfer_models.gguf.quantize.mixes import ALIASES, FALLBACK, FILE_TYPES
from minfer_models.gguf.quantize.options import QuantizeOptions
from minfer_models.gguf.quantize.plan import Choice, plan_quantization
from minfer_models.gguf.quantize.quantize import Quantized, quantize_gguf, work_of, write_quantized

__all__ = [
    "ALIASES",
    "FALLBACK",
    "FILE_TYPES",
    "Choice",
    "QuantizeOptions",
    "Quantized",
    "plan_quantization",
    "quantize_gguf",
    "work_of",
    "write_quantized",
]
