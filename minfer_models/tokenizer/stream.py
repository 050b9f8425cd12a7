"""Text out of token ids as they arrive."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opening:
    """The bytes of the first token that shows, and with `whole_space` of those after it until one has bytes left."""

    bytes_of: Callable[[int], bytes]
    whole_space: bool = False


class StreamDecoder:
    """Turns ids into text one at a time, holding back bytes that are not a whole character yet.

    The pieces and the final `flush` join to what decoding all ids at once gives: invalid bytes become U+FFFD.
    """

    def __init__(self, bytes_of: Callable[[int], bytes], opening: Opening | None = None) -> None:
        """`opening`: how a text starts, when it's decoded from its start."""
        self._bytes_of = bytes_of
        self._opening = opening
        self._opens = opening is not None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this id completes, possibly none. Raises TokenizerError for an id out of range."""
        data = self._bytes_of(token_id)
        if self._opens and self._opening is not None and data:
            data = self._opening.bytes_of(token_id)
            self._opens = self._opening.whole_space and not data
        return self._decoder.decode(data)

    def flush(self) -> str:
        """U+FFFD for a character that never ended, else nothing; the decoder is then as new."""
        self._opens = self._opening is not None
        return self._decoder.decode(b"", final=True)
