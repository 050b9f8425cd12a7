"""GGUF files: a strict reader that survives hostile input, and a deterministic writer."""

from minfer_models.gguf.destination import check_destination
from minfer_models.gguf.errors import GGUFError
from minfer_models.gguf.finite import check_finite, check_rows
from minfer_models.gguf.layout import TensorInfo
from minfer_models.gguf.metadata import Metadata, TypedValue
from minfer_models.gguf.quantize import Quantized, quantize_gguf
from minfer_models.gguf.reader import GGUFFile, open_gguf
from minfer_models.gguf.source import TensorSource, array_source, file_source
from minfer_models.gguf.split import merge_gguf, split_gguf
from minfer_models.gguf.strings import StringArray
from minfer_models.gguf.types import format_of, type_of
from minfer_models.gguf.writer import SplitRule, write_gguf

__all__ = [
    "GGUFError",
    "GGUFFile",
    "Metadata",
    "Quantized",
    "SplitRule",
    "StringArray",
    "TensorInfo",
    "TensorSource",
    "TypedValue",
    "array_source",
    "check_destination",
    "check_finite",
    "check_rows",
    "file_source",
    "format_of",
    "merge_gguf",
    "open_gguf",
    "quantize_gguf",
    "split_gguf",
    "type_of",
    "write_gguf",
]
