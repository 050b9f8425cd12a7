"""Stop strings: text ends where one of them begins, wherever the tokens fall."""

from __future__ import annotations

from collections.abc import Sequence


class StopError(ValueError):
    """A stop string that can't be one; the message has its value."""


class Stops:
    """Text passes through piece by piece, less what may still become a stop string.

    The stop string that is complete first ends the text, of several that end together the longest. So the text doesn't
    depend on how it is cut into pieces. Stop strings are literal: backslash and n are two characters.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = tuple(dict.fromkeys(strings))
        self.found: str | None = None
        self._held = ""

    def push(self, piece: str) -> str:
        """The text that is certain now, possibly none; what comes after a stop string is dropped."""
        if self.found is not None:
            return ""
        if not self.strings:
            return piece
        text, scanned = self._held + piece, len(self._held)
        ends = [(at + len(stop), at, stop) for stop in self.strings if (at := _first(text, stop, scanned)) >= 0]
        if ends:
            _, start, self.found = min(ends)
            self._held = ""
            return text[:start]
        certain = len(text) - max(_begun(text, stop) for stop in self.strings)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """What was held back, once nothing more comes: no stop string became of it."""
        held, self._held = self._held, ""
        return held


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """One stop string or several as a tuple. Raises StopError for an empty one, and for what isn't text."""
    if stop is None:
        return ()
    if not isinstance(stop, str | Sequence) or isinstance(stop, bytes):
        raise StopError(f"stop is {stop!r}, expected text or a list of texts")
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    for string in strings:
        if not isinstance(string, str):
            raise StopError(f"stop has {string!r}, expected text")
        if not string:
            raise StopError("a stop string is empty: it would end every text at once")
    return strings


def _first(text: str, stop: str, scanned: int) -> int:
    """Where `stop` first ends behind the `scanned` characters, of which none ended one; -1 for nowhere."""
    return text.find(stop, max(scanned - len(stop) + 1, 0))


def _begun(text: str, stop: str) -> int:
    """Characters at the end of `text` that begin `stop`."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
