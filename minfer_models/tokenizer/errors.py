"""The one error of this package."""

from __future__ import annotations

from minfer_models.plain_text import plain


class TokenizerError(ValueError):
    """Metadata that makes no usable tokenizer, or input it cannot encode or decode; the message has the values.

    It is one printable line of bounded length, whatever the file holds.
    """

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))
