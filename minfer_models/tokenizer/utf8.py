"""Text as the bytes it is made of."""

from __future__ import annotations

from minfer_models.tokenizer.errors import TokenizerError


def utf8(text: str) -> bytes:
    """The UTF-8 of `text`. Raises TokenizerError for a lone surrogate, which has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise TokenizerError(f"the text has a lone surrogate, U+{code:04X}, at character {error.start}") from None
