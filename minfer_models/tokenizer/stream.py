"""Text out of token ids as they arrive."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Turns ids into text one at a time, holding back bytes that are not a whole character yet.

    The pieces and the final `flush` join to what decoding all ids at once gives: invalid bytes become U+FFFD.
    """

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this id completes, possibly none. Raises TokenizerError for an id out of range."""
        return self._decoder.decode(self._bytes_of(token_id))

    def flush(self) -> str:
        """U+FFFD for a character that never ended, else nothing; the decoder is then as new."""
        return self._decoder.decode(b"", final=True)
