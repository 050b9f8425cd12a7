"""The one error of this package."""

from __future__ import annotations


class TokenizerError(ValueError):
    """Metadata that makes no usable tokenizer, or input it cannot encode or decode; the message has the values."""
