"""Reading a text of which more may come."""

from __future__ import annotations

from typing import Final

BLANKS: Final = " \t\r\n"
MOST_NAME: Final = 256
"""Characters of a name, before a text is certainly no call."""


class MoreNeededError(Exception):
    """The text ends before it is known what stands there."""


class NotACallError(Exception):
    """What stands there is no call, whatever follows."""


class JsonScan:
    """Looks through a JSON object as it grows, each character once."""

    def __init__(self) -> None:
        self._at = self._depth = 0
        self._in_string = self._escaped = False
        self._end = 0

    def end(self, text: str, start: int) -> int:
        """One past the brace that closes the object at `start`; asked again, it goes on where the text ended.

        Raises MoreNeededError, and NotACallError for a line break or another control character inside of a string.
        """
        self._at = max(self._at, start)
        while not self._end and self._at < len(text):
            char = text[self._at]
            self._step(char)
            if char == "}" and not self._in_string and self._depth == 0:
                self._end = self._at
        if not self._end:
            raise MoreNeededError
        return self._end

    def _step(self, char: str) -> None:
        self._at += 1
        if self._in_string:
            if char < " ":
                raise NotACallError
            self._in_string = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
        elif char == '"':
            self._in_string = True
        elif char in "{}":
            self._depth += 1 if char == "{" else -1


class Cursor:
    """A place in a text, which moves on behind what was read.

    What is read depends on the text alone, never on how much of it has come: until that is certain, MoreNeededError.
    `begun`: a call has certainly begun, so that one which is cut off isn't taken for content.
    """

    def __init__(self, text: str, scan: JsonScan) -> None:
        """scan: of the first object in this text; the same one while the text grows."""
        self.text, self.at = text, 0
        self.begun = False
        self._scan = scan

    def skip(self, characters: str = BLANKS) -> None:
        """Move on behind any of these; something else must stand there."""
        while self.at < len(self.text) and self.text[self.at] in characters:
            self.at += 1
        if self.at == len(self.text):
            raise MoreNeededError

    def takes(self, marker: str) -> bool:
        """Whether `marker` stands here, and if so move on behind it."""
        here = self.text[self.at : self.at + len(marker)]
        if here == marker:
            self.at += len(marker)
            return True
        if marker.startswith(here):
            raise MoreNeededError
        return False

    def require(self, marker: str) -> None:
        """Move on behind `marker`. Raises NotACallError for anything else."""
        if not self.takes(marker):
            raise NotACallError

    def until(self, ends: str, most: int = MOST_NAME) -> str:
        """The text before the first of these characters. Raises NotACallError for none, and for more than `most`."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ends:
            self.at += 1
        if self.at - start > most or (self.at == start and self.at < len(self.text)):
            raise NotACallError
        if self.at == len(self.text):
            raise MoreNeededError
        return self.text[start : self.at]

    def object(self) -> str:
        """The JSON object that stands here, as far as its braces tell. Raises NotACallError for none."""
        start = self.at
        if not self.text.startswith("{", start):
            raise MoreNeededError if start == len(self.text) else NotACallError
        self.at = self._scan.end(self.text, start)
        return self.text[start : self.at]
