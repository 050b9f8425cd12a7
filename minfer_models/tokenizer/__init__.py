"""Tokenizers from GGUF metadata: special tokens only where trusted, decoding as ids arrive."""

from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.hf_metadata import metadata_from_hf
from minfer_models.tokenizer.stream import StreamDecoder
from minfer_models.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "Tokenizer", "TokenizerError", "metadata_from_hf"]
