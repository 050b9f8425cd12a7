"""Tokenizers from GGUF metadata: byte-level BPE, special tokens only where trusted, incremental decoding."""

from minfer_models.tokenizer.bpe import Tokenizer
from minfer_models.tokenizer.errors import TokenizerError
from minfer_models.tokenizer.hf_metadata import metadata_from_hf
from minfer_models.tokenizer.stream import StreamDecoder

__all__ = ["StreamDecoder", "Tokenizer", "TokenizerError", "metadata_from_hf"]
